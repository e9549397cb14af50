/**
 * A process that appends turns, of which the first and the last signal, and ends itself with SIGKILL once the last one is
 * committed, before its signal and answer.
 * Settings come as JSON in `APPEND`.
 */
import type { ChatMessage } from '../../src/conversation/message.js';
import { Palimpsest } from '../../src/library/palimpsest.js';
import type { PolicyInput } from '../../src/policy/schema.js';
import { SessionWorkflows } from '../../src/temporal/session-workflows.js';

export interface DoomedAppend {
  databaseUrl: string;
  address: string;
  queuePrefix: string;
  /** @default queuePrefix */
  tenant?: string;
  session: string;
  turns: ChatMessage[][];
  policy: PolicyInput;
}

const {
  databaseUrl,
  address,
  queuePrefix,
  tenant = queuePrefix,
  session,
  turns,
  policy,
} = JSON.parse(process.env['APPEND'] ?? '{}') as DoomedAppend;

const tell = SessionWorkflows.prototype.signalTurn;
SessionWorkflows.prototype.signalTurn = function (...turn) {
  if (turn[1].turnId === `t-${turns.length - 1}`) process.kill(process.pid, 'SIGKILL');
  return tell.apply(this, turn);
};

const palimpsest = await Palimpsest.connect({
  ...{ databaseUrl, temporal: { address }, tenant, queuePrefix },
});
for (const [index, messages] of turns.entries())
  await palimpsest.appendTurn({ session, turnId: `t-${index}`, messages, policy });
