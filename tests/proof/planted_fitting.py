"""Faults in what is sent to a next hop, and in what its answers about recipients are taken to mean."""

from __future__ import annotations

from .planting import Fault

_TAKES = "delivery/test_what_hops_take.py::"

FITTING = (
    Fault(
        name="a report quotes octets above 127 as they are",
        rule="a report fits every hop, since nobody hears that it was refused",
        file="wire/report.py",
        edits=(("    if content.isascii() and b", "    if b"),),
        test="delivery/test_reports_fit.py::"
        "test_the_sender_gets_a_report_through_a_hop_of_whatever_extensions[whom0]",
    ),
    Fault(
        name="a report shows an address in UTF-8 in its status",
        rule="a report is 7-bit (RFC 6533 3)",
        file="wire/report_fields.py",
        edits=(("_escaped(local + at + canonical(domain))", "clean(local + at + canonical(domain))"),),
        test="wire/test_report.py::test_addresses_in_utf_8_are_escaped_in_the_status_and_shown_in_the_text",
    ),
    Fault(
        name="a header that is returned may be as long as it likes",
        rule="a report with a header has 64 KiB at most, which every server takes (RFC 5321 4.5.3.1.7)",
        file="wire/report.py",
        edits=(("        if left < 0:\n", "        if left < -1_000_000:\n"),),
        test="wire/test_report.py::test_a_report_that_returns_a_header_has_64_kib_at_most",
    ),
    Fault(
        name="what was declared decides whether a hop can take a content in a file",
        rule="what was seen decides, and not what was declared",
        file="smtp/sending/message.py",
        edits=(
            (
                '    unknown = eight_bit is None and "8BITMIME" not in extensions\n',
                "    unknown = False\n",
            ),
        ),
        test=_TAKES + "test_ascii_that_was_declared_8_bit_goes_to_a_hop_without_8bitmime[in a file]",
    ),
    Fault(
        name="what a content holds is believed before it is compared with its digest",
        rule="verify, then send; nothing is refused for what damage looks like",
        file="delivery/attempt.py",
        edits=(
            ("afresh=lambda: source(content, digest)", "afresh=lambda: blocks(content)"),
            ("import ContentDamaged, source", "import ContentDamaged, blocks, source"),
        ),
        test=_TAKES + "test_damage_of_a_file_is_not_taken_for_8_bit_content",
    ),
    Fault(
        name="a 552 after others were taken is a refusal",
        rule="too many recipients is temporary once some were taken (RFC 5321 4.5.3.1.10)",
        file="smtp/sending/transaction.py",
        edits=(("(reply.code == 552 and others)", "False"),),
        test=_TAKES + "test_recipients_past_the_hops_limit_go_in_the_next_transaction_at_once"
        "[552 Too many recipients\\r\\n]",
    ),
    Fault(
        name="a 552 to the first recipient is too many recipients",
        rule="a full mailbox is not tried until it expires (RFC 5321 4.5.3.1.10)",
        file="smtp/sending/transaction.py",
        edits=(("(reply.code == 552 and others)", "reply.code == 552"),),
        test="smtp/test_send.py::test_a_hop_that_takes_nobody_names_no_recipients_past_its_limit"
        "[552 mailbox full-Ending.REJECTED]",
    ),
    Fault(
        name="an MX record with an address in it is looked up as a name",
        rule="an address of ours is us, however the DNS spells it (RFC 5321 5.1)",
        file="resolver.py",
        edits=(("        if _is_address(host.name):", "        if False:"),),
        test=_TAKES
        + "test_an_mx_record_that_names_an_address_of_ours_fails_the_recipient_at_once[10 127.0.0.1.]",
    ),
    Fault(
        name="a name server without EDNS is given up",
        rule="it is asked again without (RFC 6891 7)",
        file="resolver.py",
        edits=(("response.rcode() not in _WITHOUT_EDNS", "response.rcode() != dns.rcode.BADVERS"),),
        test="test_resolver.py::test_a_name_server_that_does_not_know_edns_is_asked_again_without"
        "[True-FORMERR]",
    ),
    Fault(
        name="a domain in Unicode needs SMTPUTF8",
        rule="a hop without SMTPUTF8 gets the A-label",
        file="smtp/sending/message.py",
        edits=(
            (
                'return address if "SMTPUTF8" in extensions else (in_ascii(address) or address)',
                "return address",
            ),
        ),
        test=_TAKES + "test_a_domain_in_unicode_reaches_a_hop_without_smtputf8",
    ),
    Fault(
        name="our own Received field makes the header one in UTF-8",
        rule="the field names the recipient in ASCII where that is possible",
        file="reception/header_fields.py",
        edits=(("recipient=(in_ascii(recipients[0]) or recipients[0])", "recipient=recipients[0]"),),
        test=_TAKES + "test_a_domain_in_unicode_reaches_a_hop_without_smtputf8",
    ),
)
