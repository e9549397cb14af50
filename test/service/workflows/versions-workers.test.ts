/**
 * During a deployment, workers of two versions serve one task queue. The earlier version is the present workflow code without the
 * change `a measurement plans and a commit settles`. Each run stays with the worker that began it, as long as this one keeps it in
 * memory; a task of a later run that the earlier version gets fails there, and is repeated.
 */
import { readFile, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { randomUUID } from 'node:crypto';
import { expect, inject, test } from 'vitest';
import { dialogue, smallPolicy } from '../../support/dialogue.js';
import { sized } from '../../support/size.js';
import { startStack } from '../../support/stack.js';

const sessions = sized(6, 24);

/** Path of a bundle whose runs begin as those of the earlier version, and which knows no marker of the later one. */
async function earlierBundle(): Promise<string> {
  const code = await readFile(inject('workflowBundlePath'), 'utf8');
  const change = /\(0, ?\w+\.patched\)\((['"])a measurement plans and a commit settles\1\)/;
  expect(code).toMatch(change);
  const codePath = path.join(os.tmpdir(), `palimpsest-earlier-${randomUUID()}.js`);
  await writeFile(codePath, code.replace(change, 'false'));
  return codePath;
}

test(
  'sessions are compacted by workers of two versions on one task queue',
  { timeout: 300_000 },
  async () => {
    const stack = await startStack();
    Object.assign(stack.settings, { workflowBundle: { codePath: await earlierBundle() } });
    await stack.work();
    const { palimpsest } = stack;
    try {
      const talk = async (session: string) => {
        for (const [index, turn] of dialogue(30).entries()) {
          const messages = turn.map((one) => ({ ...one, content: `${String(one.content)} (${session})` }));
          await palimpsest.appendTurn({ session, turnId: `t-${index}`, messages, policy: smallPolicy });
        }
        await palimpsest.settled({ session, timeoutMs: 200_000 });
      };
      const names = Array.from({ length: sessions }, (_, index) => `s-${index}`);
      await Promise.all(names.map(talk));
      for (const session of names) {
        const compactions = await palimpsest.compactions({ session });
        expect(compactions.length, session).toBeGreaterThan(0);
        expect(compactions.map(({ method }) => method)).toEqual(compactions.map(() => 'model'));
        const { overdue, lastError, generation } = await palimpsest.status({ session });
        expect({ overdue, lastError, generation }).toEqual({
          ...{ overdue: null, lastError: null },
          generation: compactions.length,
        });
      }
      expect(stack.model.paidTwice()).toEqual([]);
    } finally {
      await stack.stop();
    }
  },
);
