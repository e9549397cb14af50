/** The API under attack, with a token of the attacker's own tenant. Sent to the attacker's process as JSON. */
export interface Target {
  /** Address of the API. */
  address: string;
  /** Bearer token of the attacker's tenant. */
  token: string;
  /** URL of the API's database, for attacks that simulate a stopped process of this product. */
  databaseUrl: string;
}

export interface Attack {
  /** One sentence for the table's notes. */
  description: string;
  /**
   * Attacks until `signal` is aborted, then returns. `note` counts what came of it, for instance the status of an
   * answer. Runs in a separate process.
   */
  run(target: Target, signal: AbortSignal, note: (what: string) => void): Promise<void>;
}

/** One request of the attacker; returns the status, or the error's code if there was no answer. */
export async function send(
  { address, token }: Target,
  method: string,
  path: string,
  body: string | undefined,
  signal: AbortSignal,
): Promise<string> {
  try {
    const response = await fetch(`${address}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${token}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body }),
      signal,
    });
    await response.arrayBuffer();
    return String(response.status);
  } catch (error) {
    const { cause, name } = error as { cause?: { code?: string }; name: string };
    return signal.aborted ? 'cut off at the end' : (cause?.code ?? name);
  }
}
