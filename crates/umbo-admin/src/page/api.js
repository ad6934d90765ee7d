// Requests to the admin API of the server that the page came from. The token is kept in this module's memory alone.

/** How long an answer is waited for, in milliseconds. */
const TIMEOUT = 10_000;

let token = null;

/** Keeps the token for the requests of this page. */
export function useToken(text) {
  token = text || null;
}

export function hasToken() {
  return token !== null;
}

/** What the server refused, in its own words; `status` is 0 where there was no answer. */
export class ApiError extends Error {
  /** The token of the page then: the refusal of one says nothing of the next. */
  #token = token;

  constructor(status, title, detail, problem = {}) {
    super(detail ? `${title}: ${detail}` : title);
    Object.assign(this, { status, title, detail, problem });
  }

  get isAway() {
    return this.status === 0;
  }

  get needsToken() {
    return this.status === 401 && this.#token === token;
  }
}

/** Sends a request and returns the JSON of the answer, null where it has none. */
export async function send(method, path, { body, headers = {}, timeout = TIMEOUT, signal } = {}) {
  const options = {
    method, cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer",
    headers: { Accept: "application/json", ...headers },
    signal: signal ? AbortSignal.any([signal, AbortSignal.timeout(timeout)]) : AbortSignal.timeout(timeout),
  };
  const sent = token;
  if (sent) options.headers.Authorization = `Bearer ${sent}`;
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  let response, text;
  try {
    response = await fetch(path, options);
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    const isLate = error.name === "TimeoutError";
    throw new ApiError(0, isLate ? `No answer within ${timeout / 1e3} s` : "The server cannot be reached", "");
  }
  let json = null;
  try {
    json = text ? JSON.parse(text) : null;
  } catch {
    if (response.ok) throw new ApiError(response.status, "The answer is not JSON", text.slice(0, 200));
  }
  // The token was given while this request was under way: it is sent again with it.
  if (response.status === 401 && token !== sent) return send(method, path, { body, headers, timeout, signal });
  if (!response.ok) {
    throw new ApiError(response.status, json?.title ?? `Status ${response.status}`, json?.detail ?? "", json ?? {});
  }
  return json;
}

export const get = (path, options) => send("GET", path, options);

/** The header that says why something is changed; empty without a reason. */
export function reasonHeader(reason) {
  const text = (reason ?? "").trim();
  // A header field holds no other characters; the rest of the reason is not lost, only escaped.
  return text ? { "Umbo-Reason": text.replace(/[^\x20-\x7e]/g, (char) => `\\u{${char.codePointAt(0).toString(16)}}`) } : {};
}
