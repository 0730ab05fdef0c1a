# Training with tfshards[loader,remote] and TensorFlow, without Apache Beam and Pillow, on CPUs.
#
#     docker build -f docker/train.Dockerfile -t IMAGE .
#     docker run --rm -v "$PWD/data:/data:ro" -v "$PWD/train.py:/train.py:ro" IMAGE /train.py
#
# --build-arg CUDA="[and-cuda]" adds NVIDIA's libraries; the machine then needs its driver and container toolkit.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY schemas schemas
COPY loader loader
COPY prep prep
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:${PYTHON}-slim
ARG TENSORFLOW=2.21.0
ARG CUDA=""
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir "$(echo /wheels/tfshards-*.whl)[loader,remote]" "tensorflow${CUDA}==${TENSORFLOW}" \
    && pip check \
    && rm -r /wheels \
    && useradd --uid 1000 --create-home train
USER 1000
WORKDIR /home/train
ENTRYPOINT ["python"]
