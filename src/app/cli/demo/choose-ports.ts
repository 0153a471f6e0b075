/**
 * Ports of the demo: chosen once per data folder and kept, because Element remembers a homeserver by its address. They lie below the range from
 * which systems take ports for outgoing connections; from inside it a kept port would one day be somebody's client socket.
 */
import { randomInt } from 'node:crypto';
import { findFreePort, isPortFree } from '../../../../synapse-dev/homeserver/ports.ts';
import type { DemoPorts } from './demo-folder.ts';

const FROM = 20_000;
const TO = 30_000;
const TRIES = 50;

/** Kept ports that are still free, and new ones for the rest. A port that was asked for is not looked at here: its listener says if it is taken. */
export async function choosePorts(kept: DemoPorts | undefined, asked: number | undefined): Promise<DemoPorts> {
  const taken = new Set<number>(asked === undefined ? [] : [asked]);
  const choose = async (wish: number | undefined): Promise<number> => {
    const port = wish !== undefined && !taken.has(wish) && (await isPortFree(wish)) ? wish : await newPort(taken);
    taken.add(port);
    return port;
  };
  return {
    homeserver: asked ?? (await choose(kept?.homeserver)),
    appservice: await choose(kept?.appservice),
    sidecar: await choose(kept?.sidecar),
    metrics: await choose(kept?.metrics),
  };
}

async function newPort(taken: ReadonlySet<number>): Promise<number> {
  for (let attempt = 0; attempt < TRIES; attempt += 1) {
    const port = randomInt(FROM, TO);
    if (!taken.has(port) && (await isPortFree(port))) return port;
  }
  return findFreePort();
}
