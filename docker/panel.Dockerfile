# The example panel: a web page on the light client.
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /src
# The same first steps in every image of ours: they are made once.
COPY requirements/image-build.txt requirements/
RUN python3 -m venv /build \
 && /build/bin/pip install --no-cache-dir --require-hashes -r requirements/image-build.txt \
 && python3 -m venv --without-pip /app
COPY requirements/image-panel.txt requirements/
RUN /build/bin/pip --python /app/bin/python install --no-cache-dir --require-hashes \
      -r requirements/image-panel.txt
COPY rpc_schema rpc_schema
COPY clients clients
RUN /build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels ./rpc_schema ./clients \
 && /build/bin/pip --python /app/bin/python install --no-index --no-deps /wheels/*.whl

FROM ${BASE}
COPY --from=build /app /app
COPY --chmod=755 docker/health.py /app/bin/health
# The owner of an empty volume is that of the folder which it covers.
RUN install -d -o 10001 -g 10001 /state
ENV PATH=/app/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PANEL_DB=/state/panel.db
COPY examples/docker-panel-durable/panel /example/panel
USER 10001:10001
WORKDIR /example
EXPOSE 8100
STOPSIGNAL SIGTERM
ENTRYPOINT ["python", "-m", "panel"]
CMD ["--host", "0.0.0.0", "--port", "8100"]
