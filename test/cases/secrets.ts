/**
 * Planted secrets: every kind in every place. The values are made up, of the form that their issuers document, with valid
 * checksums. They are put together from pieces, so that no scanner takes this file for a leak.
 */

export interface Planted {
  kind: string;
  /** The text with the secret in it. */
  text: string;
  /** The parts of it that must not be read by anybody. */
  secrets: string[];
}

const join = (...pieces: string[]): string => pieces.join('');

/** Characters that look random, always the same for a seed. */
function random(seed: string, length: number, alphabet: string): string {
  let state = [...seed].reduce((sum, character) => (sum * 31 + character.charCodeAt(0)) >>> 0, 7);
  let text = '';
  while (text.length < length) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    text += alphabet[(state >>> 8) % alphabet.length]!;
  }
  return text;
}

const upper = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ';
const lower = upper.toLowerCase();
const digits = '0123456789';
const alnum = (seed: string, length: number) => random(seed, length, upper + lower + digits);
const hex = (seed: string, length: number) => random(seed, length, '0123456789abcdef');
const base32 = (seed: string, length: number) => random(seed, length, `${upper}234567`);
const base64 = (seed: string, length: number) => random(seed, length, `${upper}${lower}${digits}+/`);
const encoded = (text: string) => Buffer.from(text).toString('base64');
const url64 = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');

/** Digits with Luhn's check digit. */
function card(digits: string): string {
  const sum = [...digits].reverse().reduce((total, digit, at) => {
    const twice = at % 2 === 0 ? Number(digit) * 2 : Number(digit);
    return total + (twice > 9 ? twice - 9 : twice);
  }, 0);
  return `${digits}${(10 - (sum % 10)) % 10}`;
}

/** An IBAN with its check digits, in groups of four. */
function iban(country: string, account: string): string {
  const number = [...`${account}${country}00`].map((one) => parseInt(one, 36)).join('');
  const check = 98n - (BigInt(number) % 97n);
  return `${country}${String(check).padStart(2, '0')}${account}`.replace(/(.{4})(?=.)/g, '$1 ');
}

function pem(label: string, seed: string): { text: string; lines: string[] } {
  const lines = Array.from({ length: 6 }, (_, line) => base64(`${seed} ${line}`, line < 5 ? 64 : 40));
  const edge = (side: string) => join('-----', side, ' ', label, 'PRIVATE ', 'KEY-----');
  return { text: [edge('BEGIN'), ...lines, edge('END')].join('\n'), lines };
}

const whole = (kind: string, secret: string, text = (it: string) => it): Planted => ({
  ...{ kind, secrets: [secret], text: text(secret) },
});

const awsId = (seed: string) => join('AK', 'IA', base32(seed, 16));
const github = (seed: string) => join('gh', 'p_', alnum(seed, 36));
const rsa = pem('RSA ', 'rsa');
const ssh = pem('OPENSSH ', 'ssh');
// Its claims are in no payload of Temporal, which a log has in base64 too.
const jwt = join(
  ...[url64({ alg: 'HS256', typ: 'JWT' }), '.', url64({ zqclaim: 'zq4711vxkw' }), '.'],
  alnum('jwt', 43),
);
const hidden = github('hidden');
const wrapped = join('sk-', 'proj-', alnum('wrapped', 64));
const inBase64 = encoded(`export GITHUB_TOKEN=${github('base64')}\n`);
const block = [`user: app`, `password: ${alnum('block', 18)}`];

export const planted: readonly Planted[] = [
  whole('AWS access key', awsId('aws id'), (it) => `aws_access_key_id = ${it}`),
  whole(
    'AWS secret key',
    base64('aws secret', 40),
    (it) => `The second column is the key: ${awsId('pair')},${it}`,
  ),
  whole('AWS session token', join('IQoJb3JpZ2lu', base64('session', 180)), (it) => `aws_session_token=${it}`),
  whole(
    'GitHub token',
    github('classic'),
    (it) => `git clone https://x-access-token:${it}@github.com/acme/app`,
  ),
  whole('GitHub fine-grained token', join('github', '_pat_', alnum('fine', 22), '_', alnum('grained', 59))),
  whole(
    'GitLab token',
    join('glp', 'at-', alnum('gitlab', 20)),
    (it) => `remote: use ${it} for the registry`,
  ),
  whole('Slack token', join('xox', 'b-', random('slack', 12, digits), '-', alnum('slack', 24))),
  whole('Slack webhook', join('T', base32('t', 8), '/B', base32('b', 8), '/', alnum('hook', 24)), (it) =>
    join('POST https://hooks.slack', '.com/services/', it),
  ),
  whole(
    'Stripe key',
    join('sk', '_live_', alnum('stripe', 24)),
    (it) => `stripe.api_key is ${it} in production`,
  ),
  whole('OpenAI key', join('sk-', 'proj-', alnum('openai', 48), 'T3Blbk', 'FJ', alnum('ai', 20))),
  whole('Anthropic key', join('sk-', 'ant-api03-', alnum('anthropic', 93), 'AA')),
  whole(
    'Google API key',
    join('AI', 'za', alnum('google', 35)),
    (it) => `https://maps.example.com/js?key=${it}&v=3`,
  ),
  whole('Google OAuth secret', join('GOC', 'SPX-', alnum('oauth', 28))),
  whole('npm token', join('npm', '_', alnum('npm', 36)), (it) => `//registry.npmjs.org/:_authToken=${it}`),
  whole('PyPI token', join('pypi-', 'AgEIcHlwaS5vcmc', alnum('pypi', 120))),
  whole('Docker token', join('dckr', '_pat_', alnum('docker', 27))),
  whole(
    'Docker login',
    encoded(`robot:${alnum('docker auth', 20)}`),
    (it) => `{"auths": {"registry.example.com": {"auth": "${it}"}}}`,
  ),
  whole('Twilio token', hex('twilio', 32), (it) => `TWILIO_AUTH_TOKEN: ${it}`),
  whole('SendGrid key', join('SG', '.', alnum('send', 22), '.', alnum('grid', 43))),
  whole(
    'Azure storage key',
    `${base64('azure', 86)}==`,
    (it) =>
      `DefaultEndpointsProtocol=https;AccountName=acme;AccountKey=${it};EndpointSuffix=core.windows.net`,
  ),
  whole('Azure client secret', join('a1b', '8Q', '~', alnum('entra', 34)), (it) => `az ad sp: ${it}`),
  whole('DigitalOcean token', join('dop', '_v1_', hex('ocean', 64))),
  whole('Hugging Face token', join('hf', '_', random('face', 34, upper + lower))),
  whole('Vault token', join('hv', 's.', alnum('vault', 24))),
  whole('Telegram bot token', join(random('bot', 10, digits), ':A', 'A', alnum('telegram', 33))),
  whole('JWT', jwt, (it) => `session ${it} expires tomorrow`),
  { kind: 'PEM private key', text: `tls.key:\n${rsa.text}\n`, secrets: rsa.lines },
  { kind: 'SSH private key', text: `cat ~/.ssh/id_ed25519\n${ssh.text}`, secrets: ssh.lines },
  whole(
    'connection string (URL)',
    alnum('postgres', 20),
    (it) => `postgresql://app:${it}@db.internal:5432/app`,
  ),
  whole(
    'connection string (ADO)',
    `${alnum('ado', 14)}!x`,
    (it) => `Server=tcp:sql.example.com,1433;Database=shop;User Id=app;Password=${it};Encrypt=true;`,
  ),
  whole(
    'basic auth in a URL',
    alnum('basic', 16),
    (it) => `curl https://deploy:${it}@artifacts.example.com/x.tgz`,
  ),
  whole('Authorization: Bearer', alnum('bearer', 40), (it) => `Authorization: Bearer ${it}`),
  whole(
    'Authorization: Basic',
    encoded(`admin:${alnum('header', 16)}`),
    (it) => `-H "Authorization: Basic ${it}"`,
  ),
  whole('cookie', alnum('cookie', 32), (it) => `Set-Cookie: sid=${it}; Path=/; HttpOnly`),
  whole(
    'curl -u user:password',
    alnum('curl', 14),
    (it) => `curl -s -u 'deploy:${it}' https://ci.example.com/job`,
  ),
  whole(
    'mysql -pPASSWORD',
    alnum('mysql', 12),
    (it) => `mysql -h db.internal -u root -p${it} shop < dump.sql`,
  ),
  whole('PGPASSWORD=', alnum('pg', 12), (it) => `PGPASSWORD=${it} psql -h db.internal -U app -c 'select 1'`),
  whole(
    'Kubernetes secret (data)',
    encoded(alnum('k8s', 17)),
    (it) => `apiVersion: v1\nkind: Secret\nmetadata:\n  name: shop\ndata:\n  smtp: ${it}\n`,
  ),
  {
    kind: 'Kubernetes secret (block scalar)',
    text: `apiVersion: v1\nkind: Secret\nmetadata:\n  name: shop\nstringData:\n  config.yaml: |\n${block.map((line) => `    ${line}`).join('\n')}\ntype: Opaque\n`,
    secrets: [alnum('block', 18)],
  },
  whole(
    '.env line',
    `${alnum('env', 10)}#${alnum('env2', 6)}`,
    (it) => `PORT=8080\nDB_PASSWORD=${it}\nDEBUG=1`,
  ),
  whole(
    'JSON configuration',
    alnum('json', 24),
    (it) => `{"host": "db", "clientSecret": "${it}", "port": 5432}`,
  ),
  whole(
    'YAML configuration',
    alnum('yaml', 20),
    (it) => `spring:\n  datasource:\n    password: ${it}\n    pool: 5`,
  ),
  whole('INI file', alnum('ini', 16), (it) => `[database]\nuser = app\npassword = ${it}\n`),
  whole(
    'XML configuration',
    alnum('xml', 16),
    (it) => `<server><username>ci</username><password>${it}</password></server>`,
  ),
  whole(
    'Terraform',
    alnum('tf', 20),
    (it) => `variable "db_password" {\n  type    = string\n  default = "${it}"\n}`,
  ),
  whole(
    'HTTP form body',
    alnum('form', 18),
    (it) => `grant_type=password&username=ada&password=${it}&scope=all`,
  ),
  whole('.netrc', alnum('netrc', 16), (it) => `machine git.example.com login ada password ${it}`),
  whole('SQL', `${alnum('sql', 12)}%`, (it) => `CREATE USER app IDENTIFIED BY '${it}';`),
  whole('API key in a query', hex('query', 32), (it) => `GET /v1/weather?q=Bern&api_key=${it}&units=metric`),
  whole(
    'password in English',
    `Blue${alnum('en', 6)}!9`,
    (it) => `By the way, the password for the staging server is ${it}, please log in.`,
  ),
  whole(
    'password in German',
    `Haus${alnum('de', 6)}7`,
    (it) => `Das Passwort für den Server lautet ${it}. Bitte nicht weitergeben.`,
  ),
  whole(
    'password in Spanish',
    `Sol${alnum('es', 6)}5`,
    (it) => `La contraseña del servidor es ${it} y no la compartas.`,
  ),
  whole('password in Chinese', `Yun${alnum('zh', 6)}3`, (it) => `服务器的密码是${it}，请不要告诉别人。`),
  whole(
    'card number',
    card('453201511283036').replace(/(.{4})(?=.)/g, '$1 '),
    (it) => `Charge it to ${it}, valid through 11/29.`,
  ),
  whole('IBAN', iban('DE', '370400440532013000'), (it) => `Bitte überweisen Sie auf ${it} bis Freitag.`),
  whole(
    'US social security number',
    join('536', '-', '22', '-', '8147'),
    (it) => `My social is ${it}, born in 1980.`,
  ),
  {
    kind: 'key with zero-width characters',
    text: `token ${hidden.slice(0, 12)}\u200B${hidden.slice(12, 25)}\u2060${hidden.slice(25)}`,
    secrets: [hidden],
  },
  whole('key in base64', inBase64, (it) => `echo ${it} | base64 -d >> ~/.profile`),
  {
    kind: 'key over two lines',
    text: `The key is\n${wrapped.slice(0, 38)}\n${wrapped.slice(38)}\nas printed.`,
    secrets: [wrapped],
  },
];

/** The places of a secret in a session, each as the text that the message or its field has. */
export const places: Readonly<Record<string, (text: string) => string>> = {
  'user text': (text) => `Here is what I have:\n\n${text}\n\nCan you set it up?`,
  'tool output': (text) => `$ cat notes\nline one\n${text}\nline three\n[exit code 0]`,
  'call arguments': (text) => JSON.stringify({ path: 'notes.txt', content: `line one\n${text}\nline three` }),
};

/** Whether a redacted text still shows a part of a secret: eight characters in a row, in any reading. */
export function shows(redacted: string, { secrets }: Planted): boolean {
  const readings = [redacted, redacted.replace(/\\n/g, '\n').replace(/\\(.)/g, '$1')];
  const plain = readings.map((text) => text.replace(/[\u200B\u2060\r\n]/g, ''));
  return secrets.some((secret) => {
    const length = Math.min(8, secret.length);
    for (let at = 0; at + length <= secret.length; at++)
      if (plain.some((text) => text.includes(secret.slice(at, at + length)))) return true;
    return false;
  });
}

/** Characters in a row that show a secret. No planted secret is shorter. */
const shownLength = 8;

/** The planted secrets that a long text shows, by the rule of {@link shows}. The time is linear in the text. */
export function shownIn(text: string): Planted[] {
  const windows = new Map<string, Planted[]>();
  for (const one of planted)
    for (const secret of one.secrets)
      for (let at = 0; at + shownLength <= secret.length; at++) {
        const window = secret.slice(at, at + shownLength);
        windows.set(window, [...(windows.get(window) ?? []), one]);
      }
  const found = new Set<Planted>();
  for (const reading of [text, text.replace(/\\+n/g, '\n').replace(/\\+(.)/g, '$1')]) {
    const plain = reading.replace(/[\u200B\u2060\r\n]/g, '');
    for (let at = 0; at + shownLength <= plain.length; at++)
      for (const one of windows.get(plain.slice(at, at + shownLength)) ?? []) found.add(one);
  }
  return planted.filter((one) => found.has(one));
}
