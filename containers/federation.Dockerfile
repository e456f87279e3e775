# Server and hospitals of a federation, from a checkout (docs/deployment.md):
#
#   docker build --tag chestfed-federation --file containers/federation.Dockerfile --build-arg PIP_EXTRA_INDEX_URL=... .
#
# With the address of PyTorch's CPU index the image has no CUDA libraries.
FROM python:3.11-slim@sha256:9c900dea9e8fb7e16277c179b555cc72d29a352dbc33cff48ad5a0412fd5bfc7

ARG PIP_EXTRA_INDEX_URL=""
ENV CHESTFED_VENV=/opt/venv \
    PIP_NO_CACHE_DIR=1 \
    PYTHONUNBUFFERED=1

WORKDIR /opt/chestfed
# The locked packages first: a change of the source does not install them again.
COPY bootstrap.py pyproject.toml ./
COPY requirements requirements
RUN python -c "import bootstrap; bootstrap.install_locked('federation')"

COPY . .
RUN python bootstrap.py install federation \
    && useradd --create-home --uid 1000 chestfed \
    && mkdir -p /srv \
    && chown chestfed /srv

USER 1000
WORKDIR /srv
# Settings and caches of libraries are readable for any user id that `user:` gives. The secret key of keyed names lies in
# the hospital's own folder (`names_key` in hospital.yaml), for the other commands too.
ENV HOME=/tmp \
    MPLCONFIGDIR=/tmp/matplotlib \
    CHESTFED_KEY_FILE=/srv/hospital/names.key \
    PATH=/opt/venv/bin:$PATH
ENTRYPOINT ["chestfed"]
CMD ["federation", "--help"]
