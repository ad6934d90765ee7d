# syntax=docker/dockerfile:1
# The image of Umbo: one binary, every role. `docker build -t umbo .`
#
#   docker run --rm -p 127.0.0.1:8080:8080 -v umbo:/data umbo serve --insecure
#
# How the roles go together is in docker-compose.yml.

FROM rust:1.95-bookworm AS build
WORKDIR /source
# Slower to build than `cargo build --release` alone; requests take a few per cent less processor time.
ENV CARGO_PROFILE_RELEASE_LTO=fat \
    CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/source/target \
    cargo build --release --locked --bin umbo \
    && strip -o /umbo target/release/umbo

FROM debian:bookworm-slim
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /umbo /usr/local/bin/umbo
# Guides, dashboards and alerts, where they are in the project.
COPY --from=build /source/config /usr/share/doc/umbo/config
COPY --from=build /source/crates/umbo-api/README.md /source/crates/umbo-api/openapi.json /usr/share/doc/umbo/crates/umbo-api/
COPY --from=build /source/crates/umbo-client/README.md /usr/share/doc/umbo/crates/umbo-client/
RUN useradd --system --no-create-home --uid 10001 --user-group umbo \
    && install --directory --owner=umbo --group=umbo --mode=0700 /data

# Inside a container the outside is everybody else. Without tokens, and without --insecure, a server
# refuses to start like this.
ENV UMBO__SERVER__LISTEN=0.0.0.0:8080 \
    UMBO__SERVER__ADMIN_LISTEN=0.0.0.0:8081 \
    UMBO__SHARD__LISTEN=0.0.0.0:7411 \
    UMBO__SHARD__ADMIN_LISTEN=0.0.0.0:7412 \
    UMBO__STORE__FOLDER=/data \
    HEALTH_PORT=8081

USER 10001:10001
WORKDIR /
VOLUME /data
EXPOSE 8080 8081 7411 7412
STOPSIGNAL SIGTERM

# Of the admin port; of a shard node that is HEALTH_PORT=7412.
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/${HEALTH_PORT:-8081} && printf 'GET /healthz HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' >&3 && read -r _ status _ <&3 && [ \"$status\" = 200 ]"]

ENTRYPOINT ["umbo"]
CMD ["serve"]
