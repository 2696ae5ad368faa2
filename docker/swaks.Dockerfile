# swaks, the client of the lab, as Debian packages it. Needs nothing of this repository:
#
#   docker build -f docker/swaks.Dockerfile -t shadowrelay-swaks docker
ARG BASE_IMAGE=debian:12.11-slim
FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="swaks for the shadowrelay lab"
# With what --tls needs, and Date and Message-ID in local time.
RUN apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends swaks libnet-ssleay-perl libnet-dns-perl \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
USER 65534:65534
WORKDIR /tmp
ENTRYPOINT ["swaks"]
