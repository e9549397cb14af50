import { setTimeout as sleep } from 'node:timers/promises';
import { saidOf } from '../test/support/material.js';
import { completion, type Script } from '../test/support/model-replies.js';
import type { RecordedRequest } from '../test/support/model-server.js';

/**
 * A model that takes exactly `latencyMs` for a call and answers with a summary of about 350 tokens. It reports no usage: counting here
 * would take time from the process that is measured with it.
 */
export function summarizer(latencyMs: number): Script {
  return async (request) => {
    const due = request.at + latencyMs;
    const reply = completion(request, {
      message: { content: `${saidOf(summary, request.body)}${stateFor(request)}` },
      finish: 'stop',
      output: '',
      promptTokens: 0,
      withoutUsage: true,
    });
    await sleep(Math.max(0, due - Date.now()));
    return reply;
  };
}

/** The state's part of an answer, where a request wants one; a second request would ask for a missing one. */
function stateFor({ body }: RecordedRequest): string {
  return body.messages.at(-1)?.content.includes('"## State"') ? '\n\n## State\n- none' : '';
}

const points = (count: number, what: string) =>
  Array.from(
    { length: count },
    (_, n) => `- ${what} ${n + 1} in src/queue/worker-${n * 37}.ts stands as before`,
  );

const summary = [
  '## Session intent',
  '- Carry on with the change to the retry queue.',
  '## Decisions',
  ...points(8, 'decision'),
  '## Artifacts',
  ...points(8, 'change'),
  '## Current state',
  '- The tests of the window and budget modules pass.',
].join('\n');
