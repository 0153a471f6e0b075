/**
 * A row that fails while the homeserver is away must wait without being counted, or an invite that arrives just before a restart is given up
 * within seconds and nobody ever joins (G1). A row that alone fails (a room whose servers are gone) must come to an end some day. The errors look
 * alike, so the homeserver is asked for something that concerns no room. Cost: one request per failed row.
 */
import { isMatrixError, type MatrixApi, type MatrixError } from '../../appservice/matrix-api.ts';
import { Unavailable } from '../inbox/unavailable.ts';

/** The homeserver serves nobody: for the dispatcher's `isOutage`. */
export class HomeserverDown extends Error {
  override readonly name = 'HomeserverDown';
}

/** Nothing was decided about the row: no answer, a failing server or proxy, or too many requests. A refusal is no such thing. */
const isPassing = (error: MatrixError): boolean =>
  error.status === 0 || error.status === 429 || error.status >= 500 || error.errcode === 'NOT_JSON';

const ASK_WITHIN_MS = 10_000;

/** Runs `work`; what it throws because the homeserver is away says so. */
export async function tellOutage<T>(api: MatrixApi, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof Unavailable) && !(isMatrixError(error) && isPassing(error))) throw error;
    if (!(await answers(api))) throw new HomeserverDown('the homeserver serves nobody', { cause: error });
    throw error instanceof Unavailable ? error : new Unavailable('the homeserver fails for this room', { cause: error });
  }
}

async function answers(api: MatrixApi): Promise<boolean> {
  try {
    await api.request('GET', '/_matrix/client/v3/account/whoami', { timeoutMs: ASK_WITHIN_MS });
    return true;
  } catch (error) {
    if (isMatrixError(error)) return false;
    throw error;
  }
}
