/**
 * Secrets of known forms, and matches of a policy's patterns, never reach a summarizer; equal ones look equal within a tenant
 * only.
 */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { redactorFor } from '../../../src/summary/redaction/redact.js';
import { WINDOW } from '../../../src/summary/redaction/search.js';

const redactorOf = (patterns: string[] = [], tenant = 'acme', secrets = true) => {
  const redact = redactorFor({ secrets, patterns }, tenant);
  if (redact === null) throw new Error('nothing is redacted');
  return redact;
};

const redact = redactorOf();

/** Put together here, so that no scanner takes this file for a leak. */
const join = (...pieces: string[]) => pieces.join('');
const long = 'a1B2c3D4e5F6g7H8i9J0'.repeat(5);

const pem = (body: string) =>
  join('-----BEGIN RSA PRIVATE', ' KEY-----\n', body, '\n-----END RSA PRIVATE', ' KEY-----');

const base64 = `${long.slice(0, 64)}\n${long.slice(0, 64)}`;

/** kind, text, the secret in it. */
const known: [kind: string, text: string, secret: string][] = [
  [
    'provider_key',
    `export OPENAI=${join('sk-', 'proj-', long.slice(0, 40))}`,
    join('sk-', 'proj-', long.slice(0, 40)),
  ],
  ['provider_key', join('sk-', 'ant-api03-', long), join('sk-', 'ant-api03-', long)],
  ['provider_key', `key ${join('AIza', long.slice(0, 35))}.`, join('AIza', long.slice(0, 35))],
  ['provider_key', `(${join('gsk_', long.slice(0, 52))})`, join('gsk_', long.slice(0, 52))],
  ['provider_key', join('sk_', 'live_', long.slice(0, 24)), join('sk_', 'live_', long.slice(0, 24))],
  ['aws_key', `aws ${join('AKIA', 'IOSFODNN7ABCDEFG')} here`, join('AKIA', 'IOSFODNN7ABCDEFG')],
  ['github_token', `git clone with ${join('ghp_', long.slice(0, 36))}`, join('ghp_', long.slice(0, 36))],
  ['github_token', join('github_pat_', long.slice(0, 82)), join('github_pat_', long.slice(0, 82))],
  [
    'slack_token',
    join('xox', 'b-123456789012-', long.slice(0, 24)),
    join('xox', 'b-123456789012-', long.slice(0, 24)),
  ],
  [
    'slack_token',
    `curl https://hooks.slack.com/services/T000/B000/${long.slice(0, 24)}`,
    `T000/B000/${long.slice(0, 24)}`,
  ],
  ['package_token', join('npm_', long.slice(0, 36)), join('npm_', long.slice(0, 36))],
  [
    'jwt',
    `token ${join('eyJ', 'hbGciOiJIUzI1NiJ9', '.eyJzdWIiOiIxIn0.', long.slice(0, 43))}`,
    join('eyJ', 'hbGciOiJIUzI1NiJ9', '.eyJzdWIiOiIxIn0.', long.slice(0, 43)),
  ],
  ['private_key', `id_rsa:\n${pem(base64)}\nend`, base64],
  ['private_key', JSON.stringify({ key: pem(base64) }), long.slice(0, 64)],
  ['private_key', `cut off: ${pem(base64).slice(0, 120)}`, long.slice(0, 64)],
  ['private_key', `${base64}\n-----END PRIVATE ${'KEY-----'}`, long.slice(0, 64)],
  ['connection_password', 'postgres://app:s3cr/t@db.internal:5432/app'.replace('/t@', '-t@'), 's3cr-t'],
  ['connection_password', 'mongodb+srv://u:p@ss@cluster0.example.net', 'p@ss'],
  ['connection_password', 'redis://:hunter2@10.0.0.1:6379', 'hunter2'],
  ['authorization', 'Authorization: Bearer abcdef.123456', 'abcdef.123456'],
  ['authorization', '{"Authorization":"Basic dXNlcjpwYXNz"}', 'dXNlcjpwYXNz'],
  ['authorization', "curl -H 'x-api-key: 0123456789'", '0123456789'],
  ['authorization', 'Cookie: session=4f3a9c; theme=dark', 'session=4f3a9c; theme=dark'],
  ['password', 'DB_PASSWORD=hunter2hunter', 'hunter2hunter'],
  ['password', 'password: correcthorse', 'correcthorse'],
  ['password', '"client_secret": "ab cd ef"', 'ab cd ef'],
  ['password', String.raw`{\"api_key\": \"zz99zz99\"}`, 'zz99zz99'],
  ['password', 'AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG', 'wJalrXUtnFEMI/K7MDENG'],
  ['password', 'mysql --password=abc123 -u root', 'abc123'],
  ['password', "access_token = 'q1w2e3r4'", 'q1w2e3r4'],
  ['card_code', 'Card code: 4711', '4711'],
  ['authorization', 'BASIC\tdXNlcjpwYXNzd29yZDEyMw==', 'dXNlcjpwYXNzd29yZDEyMw=='],
  ['password', 'net\tuse z: \\\\nas\\disk /user:bob Zx9-open', 'Zx9-open'],
  ['password', "echo 'root:q1w2e3r4' | chpasswd", 'root:q1w2e3r4'],
  ['password', 'echo q1w2e3r4 | sudo\t-S ls', 'q1w2e3r4'],
  ['password', 'ENV\tDB_CREDENTIALS q1w2e3r4', 'q1w2e3r4'],
  ['password', 'pat: |\n  q1w2e3r4\n', 'q1w2e3r4'],
  ['password', 'JSESSIONID=q1w2e3r4', 'q1w2e3r4'],
  ['password', '("connect.sid", "q1w2e3r4")', 'q1w2e3r4'],
  ['password', 'A palavra-passe é q1w2e3r4', 'q1w2e3r4'],
  ['password', 'mit dem Kennwort q1w2e3r4', 'q1w2e3r4'],
  ['password', 'loggedin as admin / Q1w2e3r4!', 'Q1w2e3r4!'],
];

describe('secrets of known forms', () => {
  test.each(known)('%s: %j', (kind, text, secret) => {
    const redacted = redact(text);
    expect(redacted).not.toContain(secret);
    expect(redacted).toMatch(new RegExp(`\\[REDACTED:${kind}:[0-9a-f]{8}\\]`));
    expect(redact(redacted)).toBe(redacted);
  });

  test('all in one text, whose other parts stay', () => {
    // A truncated key hides the text up to the end of the next key.
    const whole = known.filter(([, line]) => !line.startsWith('cut off'));
    const text = whole.map(([, line], index) => `line ${index}\n${line}\n`).join('');
    const redacted = redact(text);
    for (const [, , secret] of whole) expect(redacted).not.toContain(secret);
    for (const index of whole.keys()) expect(redacted).toContain(`line ${index}\n`);
    expect(redacted).toContain('postgres://app:[REDACTED');
    expect(redacted).toContain('@db.internal:5432/app');
    expect(redact(redacted)).toBe(redacted);
  });

  test.each([
    ['prose', 'The password field is required. Tokens: 4096. Reset the secret later.'],
    [
      'code',
      'const token = randomBytes(32);\nCLIENT_SECRET: z.string().min(1),\nif (password === undefined) throw e;',
    ],
    [
      'references',
      'password=$DB_PASSWORD token: process.env.TOKEN api_key: <your key> secret: ${{ secrets.X }}',
    ],
    ['counts', 'max_tokens: 4096, total_token: 12345678, "prompt_tokens": 17'],
    [
      'hashes and ids',
      'commit 0123456789abcdef0123456789abcdef01234567, toolu_01A09q90qw90lq917835lq9, 550e8400-e29b-41d4-a716-446655440000',
    ],
    ['URLs', 'https://example.com:8080/a@b and user@example.com'],
    ['names that begin alike', 'task-force risk-assessment-of-the-quarterly-report desk_live_view'],
  ])('%s stays unchanged', (_name, text) => expect(redact(text)).toBe(text));
});

describe('a long text', () => {
  const prose = 'Some words of prose, and more. ';
  test.each(known)('is searched across the ends of windows for %s: %j', (_kind, text) => {
    const alone = redact(`\n${text}\n* `);
    // An end of a window is before, in and after the secret.
    for (let early = -1; early <= text.length + 1; early += Math.ceil(text.length / 6)) {
      const before = prose.repeat(WINDOW).slice(0, 2 * WINDOW - early);
      const after = prose.repeat(WINDOW / 16);
      expect(redact(`${before}\n${text}\n* ${after}`)).toBe(`${before}${alone}${after}`);
    }
  });

  test('is searched across windows for a value that is longer than one', () => {
    const lines = `  ${long} ${long}\n`.repeat(100);
    const text = `${prose.repeat(1_000)}\npassword: |\n${lines}`;
    expect(lines.length).toBeGreaterThan(WINDOW);
    expect(redact(`${text}next: 1\n${prose.repeat(1_000)}`)).toMatch(
      /password: \|\n\s*\[REDACTED:password:[0-9a-f]{8}\]\s*next: 1\nSome/,
    );
  });

  test.each([
    ['lines that may end a key', `private key\n${`${'A'.repeat(20)}\n`.repeat(50_000)}`],
    ['beginnings of values', 'token="'.repeat(20_000)],
    ['parts of names', `password ${`${'1'.repeat(40)}_`.repeat(8_000)}`],
    ['prose', prose.repeat(40_000)],
  ])('of %s lets other work run between its windows', (_name, text) => {
    let steps = 0;
    for (const work = redact.steps!(text); !work.next().done;) steps += 1;
    expect(steps).toBeGreaterThan((3 * text.length) / WINDOW);
    expect(steps).toBeGreaterThan(100);
  });

  test('with manifests whose values have blanks inside takes linear time', () => {
    const value = `b${' '.repeat(90_000)}b`;
    const redacted = redact(`kind: Secret\ndata:\n  a: ${value}\n---\n`.repeat(80));
    expect(redacted).toMatch(
      /^(?:kind: Secret\ndata:\n {2}a: \[REDACTED:password:[0-9a-f]{8}\]\n---\n){80}$/,
    );
  });
});

describe('the placeholder of a secret', () => {
  const token = known[6]![1];
  test('is the same for the same secret of a tenant, and differs for other secrets and other tenants', () => {
    const mark = (text: string, tenant = 'acme') =>
      /\[REDACTED:[^\]]+\]/.exec(redactorOf([], tenant)(text))?.[0];
    expect(mark(`a ${token}`)).toBe(mark(`b ${token} c`));
    expect(mark(token)).not.toBe(mark(token.replace('a1B2', 'a1B3')));
    expect(mark(token)).not.toBe(mark(token, 'globex'));
  });
});

describe('patterns of the policy', () => {
  test('are redacted with the kind `custom`, also across the boundaries of search windows, with or without the known forms', () => {
    const filler = 'x '.repeat(1_990);
    const text = `${filler}EMP-12345${filler}EMP-12345 ${known[6]![1]}`;
    expect(redactorOf(['EMP-\\d{5}'])(text)).toMatch(
      /x \[REDACTED:custom:([0-9a-f]{8})\][x ]+\[REDACTED:custom:\1\] .*github/,
    );
    const without = redactorOf(['EMP-\\d{5}'], 'acme', false)(text);
    expect(without).not.toContain('EMP-');
    expect(without).toContain('ghp_');
  });

  test('that the matcher does not support are refused with their path before any text is redacted', () => {
    for (const pattern of ['(?<=key: )\\w+', '(?!a)b', '(a)\\1', 'a{1000}{1000}', '(']) {
      expect(() => redactorOf(['ok', pattern])).toThrow(
        expect.objectContaining({ type: 'Input.Invalid', path: 'policy.redact.patterns[1]' }),
      );
    }
  });

  test('that nest repetitions are matched like any other', () => {
    expect(redactorOf(['(a+)+b', '(\\w+\\s?)*!'])('x aaab; then some words!')).toMatch(
      /^x \[REDACTED:custom:[0-9a-f]{8}\]; \[REDACTED:custom:[0-9a-f]{8}\]$/,
    );
  });

  test.each([
    ['contains a match of an earlier pattern', ['\\d{4}', 'card .*$'], 'by card 1234 of Jane Roe\nyes'],
    [
      'begins inside a match of an earlier pattern',
      ['1234 of', 'of Jane Roe'],
      'by card 1234 of Jane Roe\nyes',
    ],
    [
      'ends inside a match of an earlier pattern',
      ['Jane Roe', '1234 of Jane'],
      'by card 1234 of Jane Roe\nyes',
    ],
    ['contains a known secret', ['card .*$'], `by card 1234 ${known[6]![1]} of Jane Roe\nyes`],
    ['includes the name of a known secret', ['token=\\w+ of .*$'], 'token=a1B2c3D4e5F6 of Jane Roe\nyes'],
    ['contains an earlier redaction', ['card .*$'], 'by card 1234 [REDACTED:custom:0123abcd] Jane Roe\nyes'],
  ])('hide every match of a pattern that %s', (_name, patterns, text) => {
    const redacted = redactorOf(patterns)(text);
    expect(redacted).not.toMatch(/1234|Jane|Roe|ghp_|a1B2/);
    expect(redacted).toMatch(/^(?:by .*|.*)\nyes$/);
    expect(redactorOf(patterns)(redacted)).toBe(redacted);
  });

  test.each([
    ['a block of many lines', 'BEGIN[^]*?END', `BEGIN${'a line of the secret\n'.repeat(1_000)}END`],
    ['a long word', 'sk-\\w+', `sk-${'k'.repeat(30_000)}secret`],
    ['emoji, repeated up to a bound', '\\u{1F600}{900}secret', `${'\u{1F600}'.repeat(900)}secret`],
    ['a word without end', 'sk-\\w+', `sk-${'k'.repeat(400_000)}secret`],
  ])('hide all of %s', (_name, pattern, secret) => {
    const filler = 'some words\n'.repeat(137);
    const redacted = redactorOf(
      [pattern],
      'acme',
      false,
    )(filler + secret + (secret.length < 1e5 ? `\n${filler}` : ''));
    expect(redacted).toMatch(
      /^(?:some words\n){137}\[REDACTED:custom:[0-9a-f]{8}\](?:\n(?:some words\n)+)?$/,
    );
  });

  test('are redacted once: twice changes nothing, whatever they match', () => {
    fc.assert(
      fc.property(
        fc.constantFrom('[a-f0-9]+', '\\w{3,}', 'RED', '.', 'custom', '\\d'),
        fc.string({ unit: 'binary', maxLength: 80 }),
        (pattern, text) => {
          const once = redactorOf([pattern])(text);
          expect(redactorOf([pattern])(once)).toBe(once);
        },
      ),
    );
  });
});

test('a policy without redaction has no redactor', () => expect(redactorFor(null, 'acme')).toBeNull());

test('any text is redacted, and a second redaction changes nothing', () => {
  const piece = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 30 }),
    fc.constantFrom(
      ...known.map(([, text]) => text),
      '=',
      ': ',
      '"',
      '\n',
      '[REDACTED:',
      '-----BEGIN ',
      'eyJ',
      '://',
      '@',
    ),
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 12 }), (pieces) => {
      const once = redact(pieces.join(''));
      expect(redact(once)).toBe(once);
    }),
    { numRuns: 400 },
  );
});

test('megabytes of text that almost looks like secrets are processed', () => {
  for (const unit of [
    'password ',
    'eyJa.',
    '://a:',
    'sk-',
    '-----BEGIN RSA PRIVATE KEY-----\n',
    'A'.repeat(70) + '\n',
    'api_',
    'Bearer ',
  ])
    expect(redact(unit.repeat(Math.floor(2_000_000 / unit.length))).length).toBeGreaterThan(0);
});
