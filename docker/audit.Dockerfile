# The audit of tracking logs: Spark, with the Java that it runs on, and shadowaudit.
#
#   docker build -f docker/audit.Dockerfile -t shadowrelay-audit .
#   docker run --rm -v LOGS:/tracking:ro -v "$PWD/out:/out" shadowrelay-audit verify /tracking --out /out
#
# Spark and Java are Python packages here: any base with Python 3.11 or newer does, and nothing is fetched beside pip.
ARG BASE_IMAGE=python:3.13.5-slim-bookworm

FROM ${BASE_IMAGE} AS build
WORKDIR /src
RUN python3 -m venv --without-pip /opt/shadowaudit
# Half a gigabyte that changes with the constraints alone, and so stands before the source.
COPY constraints.txt pyproject.toml README.md LICENSE ./
RUN mkdir -p src/shadowrelay && printf '__version__ = "0"\n' >src/shadowrelay/__init__.py \
    && python3 -m pip --python /opt/shadowaudit/bin/python install --no-cache-dir --no-compile -c constraints.txt '.[audit]' \
    && python3 -m pip --python /opt/shadowaudit/bin/python uninstall -y -q shadowrelay \
    && rm -rf src build
COPY src ./src
RUN python3 -m pip --python /opt/shadowaudit/bin/python install --no-cache-dir --no-compile --no-deps .

FROM ${BASE_IMAGE}
ARG VERSION=0.2.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="shadowrelay audit" \
      org.opencontainers.image.description="Proves from tracking logs that no acknowledged message was lost" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
RUN printf 'relay:x:10001:10001:shadowrelay:/tmp:/usr/sbin/nologin\n' >>/etc/passwd \
    && printf 'relay:x:10001:\n' >>/etc/group \
    && install -d -o 10001 -g 10001 /out /tracking
COPY --from=build /opt/shadowaudit /opt/shadowaudit
ENV PATH=/opt/shadowaudit/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp \
    SPARK_LOCAL_IP=127.0.0.1
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["shadowaudit"]
CMD ["--help"]
