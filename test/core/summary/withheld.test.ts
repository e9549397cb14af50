/** Messages without their secrets: unchanged messages stay what they are, and long lists are searched in steps. */
import { expect, test } from 'vitest';
import type { LoggedMessage } from '../../../src/conversation/message.js';
import { resolvePolicy } from '../../../src/policy/layers.js';
import { atOnce } from '../../../src/steps.js';
import { redactorFor } from '../../../src/summary/redaction/redact.js';
import { withoutSecrets } from '../../../src/summary/redaction/withheld.js';

const policy = resolvePolicy({ redact: { secrets: true } });
const redact = redactorFor(policy.redact, 'acme')!;

const logged = (seq: number, content: LoggedMessage['message']['content']): LoggedMessage => ({
  ...{ seq, tokens: 1 },
  message: { role: 'user', content },
});

const plain = Array.from({ length: 50 }, (_, index) => logged(index + 1, `Message ${index}.`));
const secret = logged(51, [
  { type: 'text', text: 'Nothing here.' },
  { type: 'text', text: 'password=hunter2-Zx81-quite-long' },
]);

test('a message without secrets is the same object; only the others are redacted', () => {
  const shown = atOnce(withoutSecrets([...plain, secret], redact));
  expect(shown.slice(0, 50).every((one, index) => one === plain[index])).toBe(true);
  expect(JSON.stringify(shown[50])).toMatch(/Nothing here.*\[REDACTED:password:/);
});

test('messages whose secrets are known already are also searched in steps', () => {
  atOnce(withoutSecrets(plain, redact));
  const steps = withoutSecrets(plain, redact);
  let count = 0;
  while (!steps.next().done) count += 1;
  expect(count).toBeGreaterThanOrEqual(plain.length);
});
