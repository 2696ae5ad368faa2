# rspamd, the filter of the lab, as Debian packages it. Its settings are mounted. Needs nothing of this repository:
#
#   docker build -f docker/rspamd.Dockerfile -t shadowrelay-rspamd docker
ARG BASE_IMAGE=debian:12.11-slim
FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="rspamd for the shadowrelay lab"
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends rspamd \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
USER _rspamd
WORKDIR /tmp
EXPOSE 11332
# Its port is open when it has read its rules.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s CMD ["bash", "-c", ": </dev/tcp/127.0.0.1/11332"]
ENTRYPOINT ["rspamd", "-f", "-c", "/etc/rspamd/rspamd.conf", "--var=DBDIR=/tmp", "--var=RUNDIR=/tmp", "--var=LOGDIR=/tmp"]
