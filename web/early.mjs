// What the page does without its Python.
//
// Speaks as long as Python cannot: what fails to load or goes wrong before the page's Python has started is shown in the
// notice. Once data-app-state has moved on from "starting", Python speaks.
// Keeps what was typed, and which conversation is shown, over a reload, which may happen before Python is there; and the
// settings for all visits.

const page = document.documentElement;
const composer = document.querySelector('[data-testid="composer"]');

function tell(words) {
  if (page.dataset.appState !== 'starting') return;
  page.dataset.appState = 'error';
  document.getElementById('status-words').textContent = 'Python could not be started';
  document.querySelector('[data-testid="progress"]').hidden = true;
  const notice = document.querySelector('[data-testid="notice"]');
  notice.textContent = `${words}. Reload the page to try again.`;
  notice.hidden = false;
}

addEventListener('error', ({ message, target }) => tell(message || `${target.src || target.href} could not be loaded`), true);
addEventListener('unhandledrejection', ({ reason }) => tell(reason?.message || String(reason)));

try {
  const drafts = sessionStorage;
  composer.value ||= drafts.getItem('tinypylm:draft') ?? '';
  page.dataset.conversation = drafts.getItem('tinypylm:conversation') ?? '';
  addEventListener('pagehide', () => {
    drafts.setItem('tinypylm:draft', composer.value);
    drafts.setItem('tinypylm:conversation', page.dataset.conversation);
  });
} catch {
  // The browser keeps no data for this site.
}

try {
  const kept = localStorage;
  page.dataset.settings = kept.getItem('tinypylm:settings') ?? '';
  const keep = () => kept.setItem('tinypylm:settings', page.dataset.settings);
  new MutationObserver(keep).observe(page, { attributeFilter: ['data-settings'] });
} catch {
  // As above.
}
