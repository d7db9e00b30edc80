// The worker's messages, handed to the page's Python in bunches.
//
// Each word of an answer is a message of its own. At hundreds of words a second, waking Python and painting for each would
// take most of a core from the threads that compute. So words wait until the last words are `gap` ms old; whatever else
// the worker says is handed over at once, with the words before it.

const WORDS = /^{"type": "(Reasoning)?Delta"/;

/** Hand the texts that `worker` posts to `take`, as one JSON list. Returns what can stop the worker's computation. */
export function listen(worker, take, gap) {
  let bunch = [];
  let timer = 0;
  let last = -Infinity;
  let stopWord = null;

  const hand = () => {
    clearTimeout(timer);
    timer = 0;
    const texts = bunch;
    bunch = [];
    take(`[${texts}]`);
  };

  const handWords = () => {
    last = performance.now();
    hand();
  };

  worker.addEventListener('message', ({ data }) => {
    if (typeof data === 'string') {
      bunch.push(data);
      if (!WORDS.test(data)) hand();
      else if (last + gap <= performance.now()) handWords();
      else timer ||= setTimeout(handWords, last + gap - performance.now());
    } else if (Object.hasOwn(data, 'stopWord')) {
      stopWord = data.stopWord; // PyScript's own messages are no texts either
    }
  });
  return {
    // The computation does not know whose wish it was: the message that says so must follow.
    stop: () => { if (stopWord) Atomics.store(stopWord, 0, 1); },
  };
}
