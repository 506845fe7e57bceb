// Calls to the server. The key comes with the address that `pnpladmm serve` printed; it is kept for this tab alone.

const KEY = 'pnpladmm-key';
const MOST_KEPT_ALIVE = 15000; // characters; a browser refuses 64 KiB and more

function takeKey() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (given.has('key')) {
    sessionStorage.setItem(KEY, given.get('key'));
    given.delete('key');
    history.replaceState(null, '', given.size ? `#${given}` : location.pathname);
  }
  return sessionStorage.getItem(KEY) ?? '';
}

const key = takeKey();

export class ServerError extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

async function send(method, path, {json, body, signal, keepalive} = {}) {
  const headers = {Authorization: `Bearer ${key}`};
  if (json !== undefined) {
    headers['Content-Type'] = 'application/json';
    body = JSON.stringify(json);
  }
  keepalive &&= body.length < MOST_KEPT_ALIVE;
  let answer;
  try {
    answer = await fetch(`/api${path}`, {method, headers, body, signal, keepalive});
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ServerError(0, 'The server does not answer. Is pnpladmm serve still running?');
  }
  if (!answer.ok) {
    let message = `The server answered ${answer.status}.`;
    try { message = (await answer.json()).error ?? message; } catch { /* no JSON: keep the number */ }
    throw new ServerError(answer.status, message);
  }
  return answer;
}

export const get = async (path, options) => (await send('GET', path, options)).json();
export const post = async (path, json = {}, options = {}) => (await send('POST', path, {json, ...options})).json();
export const put = async (path, json, options) => (await send('PUT', path, {json, ...options})).json();
export const remove = async (path) => (await send('DELETE', path)).json();

export async function upload(path, file, name) {
  return (await send('POST', `${path}?name=${encodeURIComponent(name)}`, {body: file})).json();
}

// A picture, decoded outside of the main thread.
export async function bitmap(path, signal) {
  const answer = await send('GET', path, {signal});
  return createImageBitmap(await answer.blob());
}

export async function fromBase64(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return createImageBitmap(new Blob([bytes], {type: 'image/png'}));
}

// The server gives an address that is good for one download: a link cannot carry the key.
export async function save(path, json) {
  const ticket = await post(path, json);
  const link = document.createElement('a');
  link.href = ticket.url;
  link.download = ticket.name;
  document.body.append(link);
  link.click();
  link.remove();
  return ticket.name;
}
