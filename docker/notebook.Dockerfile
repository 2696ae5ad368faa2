# JupyterLab with PySpark, the Java that it runs on, shadowaudit, and the notebooks.
#
#   docker build -f docker/notebook.Dockerfile -t shadowrelay-notebook .
#   docker run --rm -p 127.0.0.1:8888:8888 -v LOGS:/tracking:ro shadowrelay-notebook
#
# It prints the address to open, with a token. Whoever has the token can run what they like in the container.
ARG BASE_IMAGE=python:3.13.5-slim-bookworm

FROM ${BASE_IMAGE} AS build
WORKDIR /src
RUN python3 -m venv --without-pip /opt/shadowaudit
# As in audit.Dockerfile, word for word: whoever has built that image has this half a gigabyte already.
COPY constraints.txt pyproject.toml README.md LICENSE ./
RUN mkdir -p src/shadowrelay && printf '__version__ = "0"\n' >src/shadowrelay/__init__.py \
    && python3 -m pip --python /opt/shadowaudit/bin/python install --no-cache-dir --no-compile -c constraints.txt '.[audit]' \
    && python3 -m pip --python /opt/shadowaudit/bin/python uninstall -y -q shadowrelay \
    && rm -rf src build
RUN mkdir -p src/shadowrelay && printf '__version__ = "0"\n' >src/shadowrelay/__init__.py \
    && python3 -m pip --python /opt/shadowaudit/bin/python install --no-cache-dir --no-compile -c constraints.txt '.[notebook]' \
    && python3 -m pip --python /opt/shadowaudit/bin/python uninstall -y -q shadowrelay \
    && rm -rf src build
# JupyterLab asks whether it may look for news on the Internet.
RUN /opt/shadowaudit/bin/jupyter labextension disable --level=sys_prefix @jupyterlab/apputils-extension:announcements
COPY src ./src
RUN python3 -m pip --python /opt/shadowaudit/bin/python install --no-cache-dir --no-compile --no-deps .

FROM ${BASE_IMAGE}
ARG VERSION=0.2.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="shadowrelay notebook" \
      org.opencontainers.image.description="JupyterLab with Spark over tracking logs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# The user of the relay's image, whose logs are not for everybody to read.
RUN printf 'relay:x:10001:10001:shadowrelay:/tmp:/usr/sbin/nologin\n' >>/etc/passwd \
    && printf 'relay:x:10001:\n' >>/etc/group \
    && install -d -o 10001 -g 10001 /tracking
COPY --from=build /opt/shadowaudit /opt/shadowaudit
COPY --chown=10001:10001 notebooks /work
ENV PATH=/opt/shadowaudit/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp \
    SHELL=/bin/bash \
    SPARK_LOCAL_IP=127.0.0.1 \
    TRACKING=/tracking
USER 10001:10001
WORKDIR /work
EXPOSE 8888
# All addresses of the container: which of the machine's lead there is for its ports to say.
ENTRYPOINT ["jupyter-lab", "--ServerApp.ip=0.0.0.0", "--ServerApp.open_browser=False", "--ServerApp.root_dir=/work"]
