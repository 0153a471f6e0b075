/**
 * One step of every verification that a person has open, on the engine's own objects: reads where each stands (verification-step.ts decides), acts, and
 * hands back what is to be sent and shown.
 */
import * as wasm from '@matrix-org/matrix-sdk-crypto-wasm';
import type { RoomId, UserId } from '../../src/ids.ts';
import { type OutgoingRequest, readRequest } from './engine-request.ts';
import { decideVerificationStep, type VerificationFacts } from './verification-step.ts';

/** Of one verification, as far as it is to be told. */
export interface Flow {
  readonly id: string;
  readonly room: RoomId | null;
  /** Once both sides can show them. */
  readonly emoji: string | null;
  readonly isDone: boolean;
  /** Done, cancelled, or out of time. */
  readonly isOver: boolean;
}

export interface Advanced {
  /** To be sent. */
  readonly requests: readonly OutgoingRequest[];
  readonly flows: readonly Flow[];
}
export interface Policy {
  /** CRYPTO_VERIFY and the person's right to use the oracle. */
  readonly may: boolean;
  readonly theyConfirmed: (flow: string) => boolean;
}

/** Takes the next step of each of the person's verifications. Runs inside one call of the engine: its objects must not outlive it. */
export async function advanceVerifications(machine: wasm.OlmMachine, user: UserId, policy: Policy): Promise<Advanced> {
  const requests: OutgoingRequest[] = [];
  const flows: Flow[] = [];
  for (const request of machine.getVerificationRequests(new wasm.UserId(user))) {
    const verification = request.getVerification();
    const sas = verification instanceof wasm.Sas ? verification : null;
    const facts = readFacts(request, { verification, sas, policy });
    flows.push({
      id: request.flowId,
      room: (request.roomId?.toString() ?? null) as RoomId | null,
      emoji: policy.may && sas !== null ? describeSas(sas) : null,
      isDone: request.isDone(),
      isOver: facts.isOver,
    });
    requests.push(...(await takeStep(request, sas, facts)));
  }
  return { requests, flows };
}

interface Parts {
  readonly verification: wasm.Sas | wasm.Qr | undefined;
  readonly sas: wasm.Sas | null;
  readonly policy: Policy;
}
const readFacts = (request: wasm.VerificationRequest, { verification, sas, policy }: Parts): VerificationFacts => ({
  mayVerify: policy.may,
  isOver: request.isDone() || request.isCancelled() || request.timedOut() || request.isPassive(),
  isRequested: request.phase() === wasm.VerificationRequestPhase.Requested && !request.weStarted(),
  offersEmoji: request.theirSupportedMethods?.includes(wasm.VerificationMethod.SasV1) ?? false,
  method: verification === undefined ? 'none' : sas === null ? 'other' : 'emoji',
  isAccepted: sas !== null && (sas.weStarted() || sas.hasBeenAccepted()),
  canBeShown: sas?.canBePresented() ?? false,
  theyConfirmed: policy.theyConfirmed(request.flowId),
  isConfirmed: sas?.haveWeConfirmed() ?? false,
});

async function takeStep(request: wasm.VerificationRequest, sas: wasm.Sas | null, facts: VerificationFacts): Promise<OutgoingRequest[]> {
  switch (decideVerificationStep(facts)) {
    case 'accept_request':
      return present(request.acceptWithMethods([wasm.VerificationMethod.SasV1]));
    case 'cancel':
      return present(request.cancel());
    case 'accept_emoji':
      return present(sas?.accept());
    case 'confirm':
      return (await sas?.confirm())?.map(readRequest) ?? [];
    case 'wait':
      return [];
  }
}
const present = (raw: Parameters<typeof readRequest>[0] | undefined): OutgoingRequest[] => (raw === undefined ? [] : [readRequest(raw)]);

/** Seven emoji with their names; three numbers for a client that has none. */
function describeSas(sas: wasm.Sas): string | null {
  if (!sas.canBePresented()) return null;
  const emoji = sas.supportsEmoji() ? sas.emoji() : undefined;
  if (emoji !== undefined) return emoji.map(({ symbol, description }) => `${symbol} ${description}`).join(', ');
  const decimals = sas.decimals();
  return decimals === undefined ? null : [...decimals].join(' ');
}
