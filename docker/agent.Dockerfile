# The example agent. For one of your own: put your module in place of the example's, and name it.
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /src
# The same first steps in every image of ours: they are made once.
COPY requirements/image-build.txt requirements/
RUN python3 -m venv /build \
 && /build/bin/pip install --no-cache-dir --require-hashes -r requirements/image-build.txt \
 && python3 -m venv --without-pip /app
COPY requirements/image-agent.txt requirements/
RUN /build/bin/pip --python /app/bin/python install --no-cache-dir --require-hashes \
      -r requirements/image-agent.txt
COPY rpc_schema rpc_schema
COPY agent agent
RUN /build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels ./rpc_schema ./agent \
 && /build/bin/pip --python /app/bin/python install --no-index --no-deps /wheels/*.whl

FROM ${BASE}
COPY --from=build /app /app
COPY --chmod=755 docker/health.py /app/bin/health
# The owner of an empty volume is that of the folder which it covers.
RUN install -d -o 10001 -g 10001 /data
ENV PATH=/app/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
COPY examples/docker-panel-durable/agent.py examples/docker-panel-durable/script.py /example/
USER 10001:10001
WORKDIR /example
EXPOSE 8000
STOPSIGNAL SIGTERM
ENTRYPOINT ["vystak-turns-agent"]
CMD ["serve", "agent:builder", "--name", "assistant", "--host", "0.0.0.0", "--port", "8000"]
