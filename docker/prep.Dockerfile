# Workers of Apache Beam with tfshards[prep,remote], without TensorFlow: see "Dataflow" in docs/clusters.md.
#
#     docker build -f docker/prep.Dockerfile -t IMAGE .
#
# Workers must have the Python, tfshards, Beam and Pillow of the machine that starts the build; a worker with
# others refuses its first task. --build-arg PILLOW="==12.3.0" chooses a release of Pillow.
ARG PYTHON=3.11
ARG BEAM=2.77.0

FROM python:${PYTHON}-slim AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY schemas schemas
COPY loader loader
COPY prep prep
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM apache/beam_python${PYTHON}_sdk:${BEAM} AS beam

FROM python:${PYTHON}-slim
ARG BEAM
ARG PILLOW=""
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir "$(echo /wheels/tfshards-*.whl)[prep,remote]" "apache-beam==${BEAM}" "pillow${PILLOW}" \
    && pip check \
    && rm -r /wheels
COPY --from=beam /opt/apache/beam /opt/apache/beam
ENTRYPOINT ["/opt/apache/beam/boot"]
