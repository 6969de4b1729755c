# Turn control. `BASE` is any Debian-like image with Python 3.11 or newer.
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /src
# The same first steps in every image of ours: they are made once.
COPY requirements/image-build.txt requirements/
RUN python3 -m venv /build \
 && /build/bin/pip install --no-cache-dir --require-hashes -r requirements/image-build.txt \
 && python3 -m venv --without-pip /app
COPY requirements/image-turns.txt requirements/
RUN /build/bin/pip --python /app/bin/python install --no-cache-dir --require-hashes \
      -r requirements/image-turns.txt
COPY rpc_schema rpc_schema
COPY service service
RUN /build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels ./rpc_schema ./service \
 && /build/bin/pip --python /app/bin/python install --no-index --no-deps /wheels/*.whl

FROM ${BASE}
COPY --from=build /app /app
COPY --chmod=755 docker/health.py /app/bin/health
# The owner of an empty volume is that of the folder which it covers.
RUN install -d -o 10001 -g 10001 /data
ENV PATH=/app/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 \
    VYSTAK_HTTP_HOST=0.0.0.0 VYSTAK_HTTP_PORT=8130
USER 10001:10001
WORKDIR /data
EXPOSE 8130
STOPSIGNAL SIGTERM
ENTRYPOINT ["vystak-turns"]
CMD ["serve"]
