// One way to get data: JSON from the server that the page came from, and its stream of events.

import { sentence } from "./text.js";

/** An answer of the server that is an error, or none; its message is a sentence for the reader. */
export class Failure extends Error {
  /**
   * @param {string} message
   * @param {number} status of HTTP; 0 without an answer
   */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** @typedef {Record<string, string | number | string[] | null | undefined>} Params */

const patience = 30_000; // milliseconds

/**
 * Shows the server its token, and gets a cookie for it that scripts cannot read.
 *
 * @param {string} token
 */
export async function login(token) {
  await send("login", {}, { method: "POST", headers: { Authorization: `Bearer ${token}` } });
}

/**
 * Returns the JSON at a path below api/v1/.
 *
 * @param {string} path
 * @param {Params} params those without a value are left out
 * @param {AbortSignal} signal
 */
export async function get(path, params, signal) {
  const limited = AbortSignal.any([signal, AbortSignal.timeout(patience)]);
  const response = await send(path, params, { signal: limited, headers: { Accept: "application/json" } });
  try {
    return await response.json();
  } catch (err) {
    throw (
      interrupted(err) ?? new Failure("The server's answer is not JSON: is there a proxy in between?", response.status)
    );
  }
}

/**
 * Returns the objects of the JSON lines at a path below api/v1/. A line that is not JSON is left out.
 *
 * @param {string} path
 * @param {Params} params
 * @param {AbortSignal} signal
 */
export async function lines(path, params, signal) {
  const limited = AbortSignal.any([signal, AbortSignal.timeout(patience)]);
  const response = await send(path, params, { signal: limited, headers: { Accept: "application/jsonl" } });
  const text = await response.text();
  return text.split("\n").flatMap(parse);
}

/**
 * Follows a stream of events until the signal, and connects again when it ends.
 *
 * @param {string} path
 * @param {Params} params
 * @param {{event: (data: any) => void, state: (problem: string) => void, signal: AbortSignal}} to event gets each
 *   object; state gets "" when the stream is connected, and a sentence when it is not
 */
export async function follow(path, params, to) {
  let last = "";
  for (let wait = 1000; !to.signal.aborted; wait = Math.min(2 * wait, 15_000)) {
    try {
      const headers = { Accept: "text/event-stream", ...(last && { "Last-Event-ID": last }) };
      const response = await send(path, params, { signal: to.signal, headers });
      to.state("");
      wait = 1000;
      for await (const event of events(response)) {
        if (event.id) last = event.id;
        parse(event.data).forEach(to.event);
      }
      to.state("The server ended the stream; connecting again.");
    } catch (err) {
      if (to.signal.aborted) return;
      const status = err instanceof Failure ? err.status : 0;
      to.state(sentence(err));
      if (status >= 400 && status < 500 && status !== 429) return; // asking again would not help
    }
    await pause(wait, to.signal);
  }
}

/**
 * Sends a request, and returns its response if that is no error.
 *
 * @param {string} path
 * @param {Params} params
 * @param {RequestInit} init
 */
async function send(path, params, init) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    for (const one of [value].flat())
      if (one !== undefined && one !== null && one !== "") query.append(key, String(one));
  }
  let response;
  try {
    response = await fetch(`api/v1/${path}${query.size > 0 ? `?${query}` : ""}`, { ...init, cache: "no-store" });
  } catch (err) {
    throw (
      interrupted(err) ??
      new Failure("The server does not answer. Is the process, or the port-forward to it, still running?", 0)
    );
  }
  if (response.ok) return response;
  throw new Failure(await reason(path, response), response.status);
}

const recorded = ["evidence", "top"]; // what a process that records events has

/**
 * Returns what a response says is wrong.
 *
 * @param {string} path
 * @param {Response} response
 */
async function reason(path, response) {
  try {
    const { error, absent } = await response.json();
    if (absent && recorded.includes(path)) {
      return "This process records no events; the page of a running server shows them.";
    }
    if (typeof error === "string" && error !== "") return error;
  } catch {
    // Not of this server: the status says what there is to say.
  }
  if (response.status === 401) return "A token is needed, that of admin.tokenFile.";
  return `The server answers ${response.status} ${response.statusText}.`;
}

/**
 * Returns the error to pass on if a request was given up, by the reader or because it took too long.
 *
 * @param {unknown} err
 */
function interrupted(err) {
  if (!(err instanceof DOMException)) return undefined;
  if (err.name === "TimeoutError") return new Failure(`The server has not answered for ${patience / 1000} seconds.`, 0);
  return err.name === "AbortError" ? err : undefined;
}

/**
 * Yields the events of a stream (the HTML standard, server-sent events).
 *
 * @param {Response} response
 * @returns {AsyncGenerator<{id: string, data: string}>}
 */
async function* events(response) {
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let id = "";
  let data = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop() ?? "";
    for (const part of parts) {
      const line = part.replace(/\r$/, "");
      if (line === "" && data !== "") {
        yield { id, data };
        data = "";
      }
      if (line.startsWith("data:")) data += (data && "\n") + line.slice(5).trimStart();
      if (line.startsWith("id:")) id = line.slice(3).trim();
    }
  }
}

/**
 * Returns the object of a line of JSON, or nothing.
 *
 * @param {string} line
 * @returns {any[]}
 */
function parse(line) {
  try {
    const value = JSON.parse(line);
    return value && typeof value === "object" ? [value] : [];
  } catch {
    return [];
  }
}

/**
 * Waits.
 *
 * @param {number} milliseconds
 * @param {AbortSignal} signal ends the wait
 * @returns {Promise<void>}
 */
function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
