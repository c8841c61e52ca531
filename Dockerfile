# An image with one static file, /tenure. Run it as it is, or copy the file into the image of your program:
#
#   COPY --from=tenure /tenure /tenure
#   STOPSIGNAL SIGTERM
#   ENTRYPOINT ["/tenure"]
#   CMD ["--", "/my-program"]
#
# BUILDER is any image with a shell, a C compiler and rustup. It builds for its own architecture, amd64 or arm64.
ARG BUILDER=rust:1.95.0-slim

FROM ${BUILDER} AS build
WORKDIR /src
ENV CC=gcc
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target,sharing=locked \
    target="$(uname -m)-unknown-linux-musl" \
    && rustup target add "$target" \
    && cargo build --release --locked --target "$target" --bin tenure \
    && cp "target/$target/release/tenure" /tenure

FROM scratch
COPY --from=build /tenure /tenure
USER 65534:65534
ENTRYPOINT ["/tenure"]
