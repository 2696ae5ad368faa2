"""Counts what a node does: the interpreter imports this by itself where PYTHONPATH has its directory.

Whoever connects to the socket $COUNT_INTO/PID reads, as JSON, what this process has counted since its start:
the calls of Python and built-in functions in all its threads, and SQL statements, its commits among them.
"""

import os
import sys

if "COUNT_INTO" in os.environ and "run" in sys.orig_argv:
    import _thread
    import cProfile
    import json
    import socket
    import sqlite3
    import threading

    profiles = [cProfile.Profile()]
    statements = []
    sums = {"statements": 0, "commits": 0}
    connect, run = sqlite3.connect, threading.Thread.run

    def counting_connect(*arguments, **named):
        connection = connect(*arguments, **named)
        connection.set_trace_callback(statements.append)  # of C: it is no call that is counted
        return connection

    def counting_run(thread):
        profile = cProfile.Profile()
        profiles.append(profile)
        profile.enable()
        try:
            run(thread)
        finally:
            profile.disable()

    def counted():
        calls = {}
        for profile in list(profiles):
            for entry in profile.getstats():
                if isinstance(entry.code, str):
                    continue  # built in: its callers tell
                named = f"{entry.code.co_filename}:{entry.code.co_name}"
                calls[named] = calls.get(named, 0) + entry.callcount
                for called in entry.calls or ():
                    if isinstance(called.code, str):
                        key = f"~:{called.code} in {named.rpartition('/')[2]}"
                        calls[key] = calls.get(key, 0) + called.callcount
        said, statements[:] = list(statements), []
        sums["statements"] += sum(one[:2] != "--" for one in said)  # a trigger's steps are comments
        sums["commits"] += said.count("COMMIT")
        return {"calls": calls, **sums}

    def answer(port):
        with port:
            while True:
                with port.accept()[0] as asking:
                    asking.sendall(json.dumps(counted()).encode())

    listening = socket.socket(socket.AF_UNIX)  # before the program begins: who asks early is heard
    listening.bind(f"{os.environ['COUNT_INTO']}/{os.getpid()}")
    listening.listen()
    sqlite3.connect, threading.Thread.run = counting_connect, counting_run
    _thread.start_new_thread(answer, (listening,))  # no Thread: its own calls do not count
    profiles[0].enable()
