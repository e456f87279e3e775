# docker build --tag chestfed --build-arg PIP_EXTRA_INDEX_URL=... .
# With the address of PyTorch's CPU index the image has no CUDA libraries. See docs/installation.md.
FROM python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b

ARG PIP_EXTRA_INDEX_URL=""
ENV CHESTFED_VENV=/opt/venv \
    PIP_NO_CACHE_DIR=1 \
    PYTHONUNBUFFERED=1

WORKDIR /opt/chestfed
# The locked packages first: a change of the source does not install them again.
COPY bootstrap.py pyproject.toml ./
COPY requirements requirements
RUN python -c "import bootstrap; bootstrap.install_locked('core')"

COPY . .
RUN python bootstrap.py install \
    && useradd --create-home --uid 1000 chestfed \
    && mkdir /work \
    && chown chestfed /work

USER 1000
WORKDIR /work
# Settings and caches of libraries are readable for any user id that `docker run --user` gives. The secret key of keyed
# names lies in a folder of its own, which is mounted: in /work it would lie beside results, elsewhere it would be lost.
ENV HOME=/tmp \
    MPLCONFIGDIR=/tmp/matplotlib \
    CHESTFED_KEY_FILE=/key/key \
    PATH=/opt/venv/bin:$PATH
ENTRYPOINT ["chestfed"]
CMD ["--help"]
