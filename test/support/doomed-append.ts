/**
 * A process that appends turns and ends itself with SIGKILL once the last of them is committed, before any signal or answer.
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
  session: string;
  turns: ChatMessage[][];
  policy: PolicyInput;
}

const { databaseUrl, address, queuePrefix, session, turns, policy } = JSON.parse(
  process.env['APPEND'] ?? '{}',
) as DoomedAppend;

const tell = SessionWorkflows.prototype.signalTurn;
let signals = 0;
SessionWorkflows.prototype.signalTurn = function (...turn) {
  if (++signals === turns.length) process.kill(process.pid, 'SIGKILL');
  return tell.apply(this, turn);
};

const palimpsest = await Palimpsest.connect({
  ...{ databaseUrl, temporal: { address }, tenant: queuePrefix, queuePrefix },
});
for (const [index, messages] of turns.entries())
  await palimpsest.appendTurn({ session, turnId: `t-${index}`, messages, policy });
