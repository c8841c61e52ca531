# One static file, /tenure, and nothing else. Run it as it is, or copy it into the image of the program that it is to run:
#
#   COPY --from=tenure /tenure /tenure
#   ENTRYPOINT ["/tenure", "--", "/my-program"]
#   STOPSIGNAL SIGTERM
#
# BUILDER: any image with a shell, a C compiler and rustup's toolchain, natively for amd64 or arm64.
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
