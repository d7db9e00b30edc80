"""From the address of a manifest to a model on this device.

The manifest is fetched afresh each time, so that a new revision is noticed; when that fails, the one that last led
to a whole model is used, which is what makes a second visit work without a network. Nothing here knows the browser:
`obtain_browser` binds it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import nullcontext

from pyruntime.delivery.download import Fetcher, Hold, OnProgress, SourceError, StoredModel, fetch_model
from pyruntime.delivery.manifest import MAX_MANIFEST_BYTES, Manifest, parse_manifest
from pyruntime.delivery.origins import origin_of, resolve
from pyruntime.delivery.store import Store
from pyruntime.errors import DeliveryError, FormatError, compose

OnNotice = Callable[[str], None]


async def obtain(
    manifest_url: str,
    *,
    page_url: str,
    store: Store,
    fetcher: Fetcher,
    more_origins: Collection[str] = (),
    on_progress: OnProgress | None = None,
    on_notice: OnNotice | None = None,
    hold: Hold = lambda name: nullcontext(),
) -> StoredModel:
    """The model of the manifest at `manifest_url`, fetched into `store` as far as it is not there yet.

    Args:
        manifest_url: address of the manifest, relative to `page_url` or absolute.
        page_url: the page's own address; its origin may always be asked.
        store: where models are kept.
        fetcher: how bytes are fetched.
        more_origins: other origins that may be asked, such as a configured registry's.
        on_progress: see `fetch_model`.
        on_notice: told, in a sentence, that the stored manifest had to be used and why.
        hold: see `fetch_model`.

    Raises:
        DeliveryError: when the manifest or the files cannot be had, or the address is on another origin.
        FormatError: when the manifest is not what it should be, or does not have the files of a model.
    """
    allowed_origins = {origin_of(page_url), *more_origins}
    url = resolve(manifest_url, page_url, allowed_origins)
    data, manifest = await _current_or_last(url, store, fetcher, on_notice)
    manifest.layout()  # refused before anything large is fetched
    model = await fetch_model(
        manifest, store, fetcher, base_url=url, allowed_origins=allowed_origins, on_progress=on_progress, hold=hold
    )
    await store.put_manifest(url, data)
    return model


async def _current_or_last(
    url: str, store: Store, fetcher: Fetcher, on_notice: OnNotice | None
) -> tuple[bytes, Manifest]:
    """The manifest served at `url`; if there is none to be had, the one stored for it."""
    try:
        data = await fetcher.fetch_document(url, max_bytes=MAX_MANIFEST_BYTES)
        return data, parse_manifest(data, name=url)
    except (SourceError, FormatError) as error:
        # A malformed answer counts as no answer: networks that ask for a login put their own page in its place.
        stored = await store.get_manifest(url)
        if stored is None:
            if isinstance(error, SourceError):
                raise DeliveryError(compose(url, str(error), advice="Check the address and the connection")) from error
            raise
        manifest = parse_manifest(stored, name=url)
        if on_notice is not None:
            on_notice(f"Using the manifest stored for {manifest.title}, because the current one cannot be had: {error}")
        return stored, manifest
