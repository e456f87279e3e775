"""Sites: a YAML each, a reader per distribution format, one validated table."""

from __future__ import annotations

from chestfed.data.sites.config import SiteConfig, load_site_config
from chestfed.data.sites.opening import open_site
from chestfed.data.sites.table import SiteTable

__all__ = ["SiteConfig", "SiteTable", "load_site_config", "open_site"]
