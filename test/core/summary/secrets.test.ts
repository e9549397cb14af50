/**
 * Planted secrets of every kind are withheld in every place; ordinary texts that look alike stay; hostile texts take linear
 * time.
 */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { isCardNumber, isIban, isSocialSecurity } from '../../../src/summary/redaction/checksums.js';
import { redactorFor } from '../../../src/summary/redaction/redact.js';
import { places, planted, shows } from '../../cases/secrets.js';
import { sized } from '../../support/size.js';

const redact = redactorFor({ secrets: true, patterns: [] }, 'acme')!;

describe.each(Object.entries(places))(
  'a planted secret in the %s is withheld, and the rest stays:',
  (_, put) => {
    test.each(planted.map((one) => [one.kind, one] as const))('%s', (_kind, one) => {
      const text = put(one.text);
      // Otherwise the test could not fail.
      expect(shows(text, one)).toBe(true);
      const redacted = redact(text);
      expect(shows(redacted, one)).toBe(false);
      expect(redacted).toMatch(/\[REDACTED:[a-z_]+:[0-9a-f]{8}\]/);
      expect(redact(redacted)).toBe(redacted);
      const [before, after] = put('§').split('§');
      expect(redacted.startsWith(before!)).toBe(true);
      expect(redacted.endsWith(after!)).toBe(true);
      if (text.startsWith('{')) expect(() => JSON.parse(redacted) as unknown).not.toThrow();
    });
  },
);

test('at least 45 different kinds are planted', () => {
  expect(new Set(planted.map(({ kind }) => kind)).size).toBe(planted.length);
  expect(planted.length).toBeGreaterThanOrEqual(45);
});

describe('also withheld:', () => {
  test.each([
    'The password is correct-horse-battery-staple.',
    'Mein Passwort ist Sonnenschein.',
    'use hunter22x as the password',
    'Tr0ub4dor&3 is my password',
    'password (temporary): X1y2z3!',
    'Login: admin / P@ssw0rd1',
    'log in as bob with password hunter2',
    'My PIN is 4711',
    'Le mot de passe est Tr0ub4dor3',
    'A senha é Segr3do99',
    'Пароль: Qwerty123',
    'パスワードはabc123XYです',
    'AWS Secret Access Key [None]: wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzKEY1',
    'os.environ["DB_PASSWORD"] = "hunter22"',
    "define('DB_PASSWORD', 'hunter22');",
    '<input type="password" name="p" value="hunter22">',
    'ENV API_TOKEN abc123def',
    'db.internal:5432:app:app:hunter22',
    'docker login -u bob -p hunter22 registry.example.com',
    'sshpass -p hunter22 ssh deploy@host',
    'redis-cli -h cache -a hunter22',
    'jdbc:oracle:thin:scott/tiger1@//db:1521/x',
    'seed phrase: abandon ability able about above absent absorb abstract absurd abuse access accident',
    '| password | hunter22x |',
    'DATABASE_URL=postgres%3A%2F%2Fapp%3Ahunter22x%40db%2Fapp',
    '$env:DB_PASSWORD="hunter22"',
    'HEROKU_API_KEY=01234567-89ab-cdef-0123-456789abcdef',
    'CVV 123',
    'ssn: 536 22 8147',
    'kubectl create secret generic x --from-literal=smtp=hunter22',
    'vault kv put secret/app smtp=hunter22',
    'echo hunter22 | sudo -S reboot',
  ])('%s', (text) => expect(redact(text)).toMatch(/\[REDACTED:/));
});

describe('unchanged:', () => {
  test.each([
    [
      'orders',
      'Order #W2378156, reservation EHGLP3, user mia_li_3668, payment credit_card_4421486, item 4965535200',
    ],
    ['commits', 'commit 9fceb02d0ae598e95dc970b74767f19372d1bd4f, index 9fceb02..83baae6 100644'],
    [
      'ids',
      '550e8400-e29b-41d4-a716-446655440000 toolu_01A09q90qw90lq917835lq9 call_abc123XYZ chatcmpl-9aBcDeF',
    ],
    [
      'checksums',
      'sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 md5 d41d8cd98f00b204e9800998ecf8427e',
    ],
    [
      'an integrity hash',
      'sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==',
    ],
    [
      'an image',
      'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
    ],
    [
      'times and numbers',
      '1700000000000 1700000000000000 2024-05-15 +1 415-555-2671 978-3-16-148410-0 1Z999AA10123456784',
    ],
    ['digits without a valid checksum', '4532 0151 1283 0367, DE00 3704 0044 0532 0130 00, 666-12-3456'],
    ['pages', 'next_page_token: CAESBgoEEgIIAQ {"nextPageToken":"CAUQAA12345"}'],
    ['token counts', 'max_tokens=4096 token_count: 123456. The token bucket refills 10 tokens.'],
    [
      'statements about passwords',
      'The password is incorrect. Your password must be at least 8 characters. Reset your password at https://x.com/reset?x=1',
    ],
    ['code', 'password: z.string().min(8), if (token === "abc") { passwordField.type = "text" }'],
    ['alternatives of a pattern', 'grep -E "^not ok|^# (tests|pass|fail)" and /pass|fail1|skip/'],
    [
      'placeholders',
      'api_key="YOUR_API_KEY" export OPENAI_API_KEY=<your-key> Authorization: Bearer $TOKEN postgres://user:password@localhost',
    ],
    [
      'keys of databases',
      'primary_key=user_id_1 sort_key: 2024x public_key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA',
    ],
    ['sessions', 'session_id: 0199a213-81c0-7800-8aa1-bbab2a035a53'],
    ['places in files', 'src/a1b2.ts:1234:5:6 and https://example.com/a:b@c'],
    [
      'ordinary base64',
      Buffer.from('The quick brown fox jumps over the lazy dog, 17 times.').toString('base64'),
    ],
  ])('%s', (_kind, text) => expect(redact(text)).toBe(text));
});

describe('checksums', () => {
  test('of cards', () => {
    expect(['4111 1111 1111 1111', '5555-5555-5555-4444', '378282246310005'].map(isCardNumber)).toEqual([
      true,
      true,
      true,
    ]);
    expect(
      ['4111111111111112', '0000000000000000', '1234567812345670', '41111111'].map(isCardNumber),
    ).not.toContain(true);
  });
  test('of bank accounts', () => {
    expect(['GB82 WEST 1234 5698 7654 32', 'DE89370400440532013000'].map(isIban)).toEqual([true, true]);
    expect(
      ['GB82WEST12345698765433', 'DE8937040044053201300', 'ZZ89370400440532013000'].map(isIban),
    ).not.toContain(true);
  });
  test('of social security', () => {
    expect(['536-22-8147', '536228147'].map(isSocialSecurity)).toEqual([true, true]);
    expect(
      ['000-12-3456', '666-12-3456', '900-12-3456', '536-00-8147', '536-22-0000'].map(isSocialSecurity),
    ).not.toContain(true);
  });
});

const pieces = [
  ...planted.map(({ text }) => text),
  ...[
    '=',
    ': ',
    '"',
    '\\"',
    '\\n',
    '\n',
    ' ',
    '\uFFFF',
    '\u200B',
    '%3D',
    '[REDACTED:',
    '[REDACTED:password:0123abcd]',
  ],
  ...[
    'password',
    'the password is ',
    'token: ',
    '-----BEGIN ',
    'eyJ',
    '://a:',
    '@b',
    'AKIA',
    '4111 ',
    'kind: Secret\ndata:\n  a: ',
  ],
];

test('a second redaction changes nothing, whatever the text', () => {
  const piece = fc.oneof(fc.string({ unit: 'binary', maxLength: 12 }), fc.constantFrom(...pieces));
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 10 }), (parts) => {
      const once = redact(parts.join(''));
      expect(redact(once)).toBe(once);
    }),
    { numRuns: sized(400, 4_000) },
  );
});

/** Each would keep a form of quadratic time busy for hours. */
test.each([
  ['names', 'password '],
  ['names of names', 'token: token: '],
  ['names with values to come', 'password:\n'],
  ['a name without end', 'a_'],
  ['headers', 'Cookie: a=authorization: '],
  ['beginnings of tokens', 'eyJa.sk-AKIA'],
  ['beginnings of keys', '-----BEGIN RSA PRIVATE KEY-----\n'],
  ['ends of keys', 'AAAA\n-----END RSA PRIVATE KEY-----\n'],
  ['lines of a key', `${'A'.repeat(70)}\n`],
  ['one word', 'A'],
  ['digits', '4'],
  ['groups of digits', '4111 1111 DE89 3704 '],
  ['addresses', '://a:'],
  ['escapes', '\\\\\\"'],
  ['characters of zero width', 'a\u200B'],
  ['manifests', 'kind: Secret\ndata:\n  a: b\n'],
  ['manifests in JSON', '"kind":"Secret","data":{'],
  ['blocks', 'password: |\n a\n'],
  ['commands', 'curl -u mysql -h '],
  ['sentences', 'the password is '],
  ['long sentences', 'password a b c d e f '],
  ['declarations', 'variable "password" {'],
])('a long text of %s is redacted in linear time', (_name, unit) => {
  const length = sized(1_000_000, 10_000_000);
  const text = unit.repeat(Math.floor(length / unit.length));
  expect(redact(text).length).toBeGreaterThan(0);
});
