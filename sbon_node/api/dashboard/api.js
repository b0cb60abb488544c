// Requests to this node, and to no other.

const PATIENCE_MS = 20_000;

/** The node answered, and refused. */
export class Refusal extends Error {
  constructor(status, problem) {
    super(problem.message || `status ${status}`);
    this.status = status;
    this.code = problem.code ?? "";
    this.hint = problem.hint ?? "";
  }
}

/** Nobody answered. */
export class Unreachable extends Error {}

/** The JSON of `GET path`. Rejects with a Refusal or Unreachable; as an AbortError where `signal` says so. */
export async function get(path, signal) {
  let response;
  let body;
  try {
    response = await fetch(path, {
      headers: { Accept: "application/json" },
      cache: "no-store",
      signal: AbortSignal.any([signal, AbortSignal.timeout(PATIENCE_MS)]),
    });
    body = await response.text();
  } catch (error) {
    if (signal.aborted) throw error;
    throw new Unreachable(error.name === "TimeoutError" ? `no answer within ${PATIENCE_MS / 1000} s` : "the node does not answer");
  }
  const value = parsed(body);
  if (!response.ok) throw new Refusal(response.status, value ?? {});
  if (value === undefined) throw new Refusal(response.status, { message: `${path}: not an answer of a node` });
  return value;
}

function parsed(body) {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}

export const paths = {
  status: () => "/v1/status",
  usage: (afterMs) => `/v1/usage?after_ms=${afterMs}`,
  members: () => "/v1/members",
  streams: () => "/v1/streams",
  queries: () => "/v1/queries",
  explanation: (query) => `/v1/queries/${encodeURIComponent(query)}/explain`,
  queryUsage: (query, afterMs) => `/v1/queries/${encodeURIComponent(query)}/usage?after_ms=${afterMs}`,
  query: (query) => `/v1/queries/${encodeURIComponent(query)}`,
  placement: (query) => `/v1/queries/${encodeURIComponent(query)}/explain/placement`,
  events: () => "/v1/events?kinds=membership,placement,queries&past=200",
};
