/** The forms of secrets, as documented by their issuers, and the places where people and programs write a secret. */
import { isCardNumber, isIban, isSocialSecurity } from './checksums.js';
import { hasDigitOrSign, isHarmless, isRandom, isSaid, type Given } from './values.js';

/**
 * Increases with every change by which a text may be redacted otherwise. It is part of the identity of a redaction: texts of an
 * earlier version are redacted again.
 */
export const FORMS_VERSION = 3;

/**
 * Stands for what is redacted already. No form has it inside a match, and it counts as a letter: a text beside a redaction does
 * not become a secret by it.
 */
export const BARRIER = '\uFFFF';

export interface SecretForm {
  kind: string;
  /** Every match contains one of these texts, in lower case; a text without any of them is not searched. Empty: no such text. */
  signs: readonly string[];
  /** Every match also contains one of these texts. */
  marks?: readonly string[];
  /**
   * The secret is the group whose name begins with `secret`, or the whole match. All repetitions are bounded, so that matching
   * takes linear time.
   */
  form: RegExp;
  /** Characters after its beginning on which it depends whether and where the form matches, if it is more than usual. */
  reach?: number;
  /** Whether the value is a secret. */
  accepts?: (value: string, given: Given) => boolean;
  /** A token whose form leaves no doubt: it is found also if it is broken over two lines. */
  token?: true;
}

const start = `(?<![A-Za-z0-9_${BARRIER}-])`;
const end = `(?![A-Za-z0-9_${BARRIER}-])`;
const form = (source: string, flags = ''): RegExp => new RegExp(source, `dg${flags}`);

/** A value in quotes. */
const inQuotes = (least: number, name: string) =>
  `(?:"(?<${name}>[^"\\r\\n${BARRIER}]{${least},500})"|'(?<${name}b>[^'\\r\\n${BARRIER}]{${least},500})'|\`(?<${name}c>[^\`\\r\\n${BARRIER}]{${least},500})\`)`;

const keyEdge = (edge: string): string =>
  `-{4,5} ?${edge} (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)? ?-{4,5}`;

/** Tokens by prefix: the prefix as literal text, and the rest as a regular expression. */
const tokens: Readonly<Record<string, readonly (readonly [prefix: string, rest: string])[]>> = {
  aws_key: [
    ...['AKIA', 'ASIA', 'ABIA', 'ACCA'].map((prefix) => [prefix, '[A-Z0-9]{16}'] as const),
    ...['IQoJb3JpZ2lu', 'FwoGZXIvYXdz', 'FQoGZXIvYXdz'].map(
      (prefix) => [prefix, '[A-Za-z0-9/+=%]{50,2000}'] as const,
    ),
  ],
  github_token: [
    ...['ghp_', 'gho_', 'ghu_', 'ghs_', 'ghr_'].map((prefix) => [prefix, '\\w{30,255}'] as const),
    ['github_pat_', '\\w{40,255}'],
    ...[
      'glpat-',
      'glptt-',
      'gldt-',
      'glrt-',
      'glcbt-',
      'glsoat-',
      'glimt-',
      'glagent-',
      'glft-',
      'gloas-',
    ].map((prefix) => [prefix, '[\\w.-]{20,120}'] as const),
    ['GR1348941', '[\\w-]{20,60}'],
    ['ATBB', '[A-Za-z0-9]{32}'],
  ],
  slack_token: [
    ['xox', '[abceoprs](?:\\.xox[bp])?-[\\w-]{10,250}'],
    ['xapp-', '\\d-[\\w-]{20,250}'],
  ],
  package_token: [
    ['npm_', '\\w{36}'],
    ['pypi-', '[\\w-]{50,250}'],
    ['dckr_', '(?:pat|oat)_[\\w-]{20,60}'],
    ['rubygems_', '[0-9a-f]{48}'],
    ['oy2', '[a-z0-9]{43}'],
    ['CLOJARS_', '[a-z0-9]{60}'],
  ],
  provider_key: [
    [
      'sk-',
      '(?=[\\w-]{0,60}\\d)(?:proj-|svcacct-|admin-|ant-(?:api|admin|oat|sid)\\d\\d-|or-v1-|lf-)?[\\w-]{16,250}',
    ],
    ['sk_', '(?:live|test|prod)_\\w{10,250}'],
    ['sk_', '[0-9a-f]{48}'],
    ['rk_', '(?:live|test|prod)_\\w{10,250}'],
    ['rzp_', '(?:live|test)_\\w{14,40}'],
    ['whsec_', '[\\w+/=]{20,100}'],
    ['gsk_', '\\w{20,120}'],
    ['xai-', '\\w{20,120}'],
    ['AIza', '[\\w-]{35}'],
    ['GOCSPX-', '[\\w-]{20,40}'],
    ['ya29.', '[\\w-]{20,500}'],
    ['1//0', '[\\w-]{20,200}'],
    ['r8_', '\\w{30,50}'],
    ['hf_', '[A-Za-z0-9]{30,50}'],
    ['api_org_', '[A-Za-z0-9]{30,50}'],
    ['pplx-', '\\w{30,70}'],
    ['nvapi-', '[\\w-]{40,90}'],
    ...['dop_v1_', 'doo_v1_', 'dor_v1_'].map((prefix) => [prefix, '[0-9a-f]{64}'] as const),
    ['SG.', '[\\w-]{16,40}\\.[\\w-]{30,60}'],
    ['key-', '[0-9a-f]{32}'],
    ['SK', '[0-9a-f]{32}'],
    ...['hvs.', 'hvb.', 'hvr.'].map((prefix) => [prefix, '[\\w-]{20,300}'] as const),
    ...['shpat_', 'shpca_', 'shppa_', 'shpss_'].map((prefix) => [prefix, '[0-9a-fA-F]{32}'] as const),
    ...['sq0atp-', 'sq0csp-'].map((prefix) => [prefix, '[\\w-]{22,60}'] as const),
    ['EAAA', '[\\w-]{56,64}'],
    ['EAA', '[A-Za-z0-9]{80,300}'],
    ['figd_', '[\\w-]{30,60}'],
    ['lin_api_', '[A-Za-z0-9]{40}'],
    ['ntn_', '[A-Za-z0-9]{40,60}'],
    ['secret_', '[A-Za-z0-9]{43}'],
    ['dapi', '[0-9a-f]{32}(?:-\\d)?'],
    ['pul-', '[0-9a-f]{40}'],
    ['dp.', '(?:pt|st|ct|sa|scim|audit)\\.[\\w.-]{30,80}'],
    ['ATATT3', '[\\w=-]{60,250}'],
    ['ATCTT3', '[\\w=-]{60,250}'],
    ['AGE-SECRET-KEY-1', '[0-9A-Z]{58}'],
    ['PMAK-', '[0-9a-f]{24}-[0-9a-f]{34}'],
    ['sntrys_', '[\\w+/=-]{40,300}'],
    ['sntryu_', '[0-9a-f]{64}'],
    ['NRAK-', '[A-Z0-9]{27}'],
    ['glsa_', '[A-Za-z0-9]{32}_[0-9a-fA-F]{8}'],
    ['glc_', '[A-Za-z0-9+/=]{32,400}'],
    ['LTAI', '[A-Za-z0-9]{12,24}'],
    ['HRKU-', '[\\w-]{30,70}'],
    ['fo1_', '[\\w-]{43}'],
    ['fm2_', '[\\w+/=-]{60,500}'],
    ['sbp_', '[0-9a-f]{40}'],
    ['pscale_', '(?:tkn|pw|oauth)_[\\w.=-]{32,64}'],
    ['vercel_blob_rw_', '\\w{20,80}'],
    ['nfp_', '[A-Za-z0-9]{36}'],
    ['rnd_', '[A-Za-z0-9]{28,40}'],
    ['re_', '[A-Za-z0-9]{8}_[A-Za-z0-9]{24}'],
    ['xkeysib-', '[0-9a-f]{64}-[A-Za-z0-9]{16}'],
    ['lsv2_', '(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}'],
    ['tvly-', '[\\w-]{28,60}'],
    ['tskey-', '[\\w-]{20,100}'],
    ['pat-na1-', '[0-9a-f-]{36}'],
    ['pat-eu1-', '[0-9a-f-]{36}'],
    ['CFPAT-', '[\\w-]{43}'],
    ['dt0c01.', '[A-Z0-9]{24}\\.[A-Z0-9]{64}'],
    ['sgp_', '\\w{40,60}'],
    ['ops_eyJ', '[A-Za-z0-9+/=_-]{100,2000}'],
    ['FLWSECK', '[_-][\\w-]{20,60}'],
    ['AQVN', '[\\w-]{35,40}'],
    ['EZAK', '[A-Za-z0-9]{54}'],
    ['EZTK', '[A-Za-z0-9]{54}'],
    ['fio-u-', '[\\w=-]{64}'],
    ['xprv', '[1-9A-HJ-NP-Za-km-z]{100,112}'],
    ['AAAA', '[\\w-]{7}:[\\w-]{120,180}'],
    ['duffel_', '(?:live|test)_[\\w=-]{43}'],
  ],
};

/** A text before each digit. */
const before = (text: string): string[] => Array.from({ length: 10 }, (_, digit) => `${text}${digit}`);

const escapedLiteral = (text: string): string => text.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&');

const tokenForms: readonly SecretForm[] = Object.entries(tokens).map(([kind, list]) => ({
  kind,
  signs: [...new Set(list.map(([prefix]) => prefix.toLowerCase()))],
  form: form(
    `${start}(?:${list.map(([prefix, rest]) => `${escapedLiteral(prefix)}${rest}`).join('|')})${end}`,
  ),
  token: true,
}));

/** The beginnings of all tokens, as a regular expression. */
export const tokenPrefixes = `(?:eyJ|${Object.values(tokens)
  .flatMap((list) => list.map(([prefix]) => escapedLiteral(prefix)))
  .join('|')})`;

/** The last word of the name of a secret. */
const secretWord =
  'pass(?:word|wd|phrase|code|wort)|passwords|pwd|kennwort|contrase(?:ñ|n)a|senha|密码|密碼|secret(?:[ _-]?(?:access[ _-]?)?key)?|secret[_-]?(?:token|value|id)|(?:api|access|auth|private|encryption|signing|account|client|master|service|storage|shared[_-]?access|license|webhook|app(?:lication)?|consumer|subscription|deploy|admin|function|host|hmac|jwt|cookie|session)[ _-]?(?:key|secret|token)|(?:refresh|bearer|id|bot|csrf|xsrf|access|oauth|user|personal[_-]?access|security)[_-]?token|jsessionid|phpsessid|asp\\.net_sessionid|connect\\.sid|credentials?';
/** Words that are the name of a secret only by themselves. */
const shortWord = 'pass|pw|pin|pat|token|passwd|auth|_auth';
const wordSigns = [
  ...['pass', 'pwd', 'secret', 'key', 'token', 'credential'],
  ...['kennwort', 'contrase', 'senha', '密', 'sessid', 'sessionid', '.sid'],
];
const nameSigns = [...wordSigns, 'pw', 'pin', 'pat', 'auth'];
/** Beginnings of password, passphrase, passcode and passwort, which "pass" and "passes" lack. */
const passWords = ['passw', 'passp', 'passc'];
/** Tokens of other uses: of pages, of models, of parsers. */
const noName =
  '(?<!(?:next|page|continuation|cursor|sync|resume|prompt|completion|total|input|output|cached|max|min|num|stop|eos|bos|pad|unk|sep|cls|mask|special|start|end|first|last|per|each|public|primary|foreign|sort|partition)[_-]?)';

/** The word is searched before what precedes it is read: few places have the word. */
const named = (word: string): string => `(?=${word})${noName}(?:${word})`;

/** The name of a secret, with what may precede and follow it: `DB_PASSWORD_2`, `spring.datasource.password`, `userPassword`. */
const name = `(?:${named(secretWord)}|(?<![A-Za-z])(?:[A-Za-z0-9]{1,40}[_.-]){0,6}${named(shortWord)})(?:[_-]?(?:\\d{1,3}|prod|staging|test|dev|live|old|new|value|b64|base64))?`;
const assigned = `(?:\\s{0,3}(?::=|=>|->|==?|:|：)\\s{0,3}|\\s{1,3}\\|\\s{1,3})`;

const notHarmless = (value: string, given: Given): boolean => !isHarmless(value, given);

/** Names of a password in sentences, in ten languages. */
const said =
  'pass ?(?:word|phrase|code)|passwd|pwd|pw|pin(?: code)?|api[ -]?key|secret(?: key)?|(?:access|private|encryption|signing|master|licen[cs]e|recovery) key|(?:otp|one-time|2fa|verification|backup|recovery) code|otp|(?:access|auth|api|bearer|refresh) token|token|passwort|kennwort|passwörter|zugangscode|zugangsdaten|contraseñ?a|contrasena|clave(?: de acceso)?|mot de passe|senha|palavra-passe|wachtwoord|lösenord(?:et)?|hasło|şifre|парол[ья]|credentials?';
const saidIs =
  "is|are|was|to|will be|=|:|：|ist|sind|lautet|heißt|heisst|war|wäre|es|está|era|son|sería|est|c'est|é|era|[eè]|är|to jest|jest|это|—|–|-|->|now";

/** Most specific first: of overlapping secrets, the first form names the kind. */
export const secretForms: readonly SecretForm[] = [
  {
    kind: 'private_key',
    signs: ['private key', 'private-lines'],
    reach: 20_480,
    // Includes keys that are cut off at either end.
    form: form(
      `${keyEdge('BEGIN')}(?:(?:(?!-----)[^${BARRIER}]){0,20000}${keyEdge('END')}|(?:\\s{1,4}[A-Za-z0-9+/=]{16,100})*(?:\\s{1,4}[A-Za-z0-9+/=]{1,100})?)|(?=${keyEdge('END')})(?<=(?<secret>(?:[A-Za-z0-9+/=]{4,80}\\s{1,4}){1,200}))${keyEdge('END')}|Private-Lines: \\d{1,3}\\s{1,2}(?<secretb>(?:[A-Za-z0-9+/=]{1,80}\\s{1,2}){1,200})`,
    ),
  },
  {
    kind: 'jwt',
    signs: ['eyj'],
    form: form(
      `${start}eyJ[\\w-]{8,4000}\\.[\\w-]{4,8000}(?:\\.[\\w-]{0,2000}){0,3}(?<![.])(?![A-Za-z0-9_${BARRIER}])`,
    ),
    token: true,
  },
  ...tokenForms,
  {
    kind: 'provider_key',
    signs: [':aa', 'q~', '.atlasv1.', ...before('-us'), ...before('/')],
    form: form(
      `${start}(?:\\d{8,10}:AA[\\w-]{32,34}|[A-Za-z0-9]{14}\\.atlasv1\\.[\\w=-]{60,70}|[0-9a-f]{32}-us\\d{1,2}|\\d/\\d{16}:[0-9a-f]{32})${end}|(?<![\\w~.${BARRIER}-])[\\w~.]{3}\\dQ~[\\w~.-]{31,34}(?![\\w~${BARRIER}-])`,
    ),
    token: true,
  },
  {
    kind: 'provider_key',
    signs: ['.'],
    // Discord: the id of the bot in base64, a time and a hash. Airtable: an id and a hash.
    form: form(
      `${start}(?:[MNO][A-Za-z0-9_-]{23,27}\\.[\\w-]{6}\\.[\\w-]{27,38}|pat[A-Za-z0-9]{14}\\.[0-9a-f]{64})${end}`,
    ),
    accepts: isRandom,
    token: true,
  },
  {
    kind: 'aws_key',
    signs: ['akia', 'asia'],
    // The secret key of a pair, in a table or a file: 40 characters after the public key.
    form: form(
      `A[KS]IA[A-Z0-9]{16}[^A-Za-z0-9/+${BARRIER}][^${BARRIER}]{0,60}?(?<![A-Za-z0-9/+])(?<secret>(?=[^\\s]{0,39}\\d)(?=[^\\s]{0,39}[a-z])(?=[^\\s]{0,39}[A-Z])[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=${BARRIER}])`,
    ),
  },
  {
    kind: 'aws_key',
    signs: ['secret'],
    form: form(
      `secret[_-]?(?:access[_-]?)?key["']?\\s{0,3}[:=]\\s{0,3}["']?(?<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=${BARRIER}])`,
      'i',
    ),
    token: true,
  },
  {
    kind: 'slack_token',
    signs: [
      'hooks.slack.com/',
      'discord.com/api/webhooks',
      'discordapp.com/api/webhooks',
      'webhook.office.com/',
    ],
    form: form(
      `hooks\\.slack\\.com/(?:services|workflows|triggers)/(?<secret>[\\w/]{20,120})|discord(?:app)?\\.com/api/webhooks/(?<secretb>\\d{10,24}/[\\w-]{40,100})|webhook\\.office\\.com/webhookb2/(?<secretc>[\\w@/-]{40,300})`,
    ),
  },
  {
    kind: 'connection_password',
    signs: ['://'],
    // `scheme://user:password@host`; the password may contain `@` and ends at the last `@` before the host.
    form: form(
      `(?<=[a-z][a-z0-9+.-]{1,20}://[^\\s/:@"'<>${BARRIER}]{0,100}:)(?<secret>[^\\s/"'<>${BARRIER}]{1,200})(?=@[\\w.[-])|(?<=https?://)(?<secretb>(?=[\\w.~-]{0,200}\\d)[\\w.~-]{20,200})(?=@[\\w.-])`,
      'i',
    ),
    accepts: (value) =>
      !/^(?:[$%<{[*]|(?:pass(?:word|wd)?|pwd|secret|token|your[\w-]*|x{3,}|\.{3})$)/i.test(value),
  },
  {
    kind: 'authorization',
    signs: ['authorization', 'bearer', 'cookie', 'basic', 'x-', '-token', '-key'],
    form: form(
      `authorization["']?\\s{0,3}(?:[:=]|=>|,)\\s{0,3}["']?(?:(?:digest|aws4-hmac-sha256|hawk|oauth|negotiate|ntlm)\\s{1,3}(?<secret>[^\\r\\n'\`${BARRIER}]{6,2000})|(?:(?:bearer|basic|token|apikey|key|bot|token token=)\\s{1,3})?["']?(?<secretb>[^\\s"'\\\\,;<>\`${BARRIER}]{6,4000}))|(?<![A-Za-z])(?:bearer|basic)\\s{1,3}(?<secretc>(?=[^\\s]{0,200}[\\d=])[\\w.~+/=-]{16,4000})|(?<![A-Za-z])(?:x-[a-z-]{0,30}(?:key|token|auth)|private-token|[a-z-]{0,20}subscription-key)["']?\\s{0,3}[:=]\\s{0,3}["']?(?<secrete>[^\\s"'\\\\,;<>\`${BARRIER}]{6,4000})|(?<![A-Za-z-])(?:set-)?cookie["']?\\s{0,2}[:=]\\s{0,3}["']?(?<secretd>[^\\r\\n"'\\\\${BARRIER}]{6,4000})`,
      'i',
    ),
    accepts: (value, { match }) => {
      if (/^(?:[$%<{[]|process\.|os\.|your|\.{3})/i.test(value)) return false;
      if (/cookie/i.test(match)) return /=\s*[^\s;]{3}/.test(value) && !/^\w+\s*=\s*[$<{]/.test(value);
      return hasDigitOrSign(value) || value.length >= 20 || /(?:bearer|basic|token)\s/i.test(match);
    },
  },
  {
    kind: 'card_number',
    signs: [],
    form: form(`(?<![\\w.${BARRIER}+/=-])[2-6]\\d{3}(?:[ -]?\\d{2,7}){2,4}\\d(?![\\w${BARRIER}+/=-]|\\.\\d)`),
    accepts: isCardNumber,
  },
  {
    kind: 'card_code',
    signs: ['cvv', 'cvc', 'security code', 'card code', 'prüfnummer', 'prüfziffer'],
    form: form(
      `(?:cvv2?|cvc2?|security code|card code|prüfnummer|prüfziffer)["']?(?: (?:is|ist|code|number|:))?\\s{0,2}[:=]?\\s{0,2}["']?(?<secret>\\d{3,4})(?!\\d)`,
      'i',
    ),
  },
  {
    kind: 'iban',
    signs: [],
    form: form(
      `(?<![A-Za-z0-9${BARRIER}])[A-Z]{2}\\d{2}(?:[ -]?[A-Z0-9]{4}){2,7}(?:[ -]?[A-Z0-9]{1,3})?(?![A-Za-z0-9${BARRIER}])`,
    ),
    accepts: isIban,
  },
  {
    kind: 'social_security',
    signs: ['-', 'ssn', 'social security'],
    form: form(
      `(?<![\\w${BARRIER}.+/-])(?<secret>\\d{3}-\\d{2}-\\d{4})(?![\\w${BARRIER}+/-]|\\.\\d)|(?:ssn|social security(?: number| no\\.?)?)["']?\\W{0,5}(?:is |of )?["']?(?<secretb>\\d{3}[ -]?\\d{2}[ -]?\\d{4})(?!\\d)`,
      'i',
    ),
    accepts: isSocialSecurity,
  },
  {
    kind: 'password_hash',
    signs: ['$'],
    form: form(
      `(?<![\\w$${BARRIER}])\\$(?:2[abxy]|[156y]|apr1|argon2(?:id|i|d)|scrypt|pbkdf2[\\w-]{0,10})\\$[\\w./+=,$-]{20,250}`,
    ),
  },
  {
    kind: 'password',
    signs: ['curl', 'wget', 'http'],
    // `curl -u user:password`, and cookies of a request.
    form: form(
      `(?:curl|wget|https?)\\b[^\\n${BARRIER}]{0,600}?\\s(?:(?:-u|--user|--proxy-user|-U|-a|--auth)[ =]?["']?[^\\s:"'${BARRIER}]{0,100}:(?<secret>[^\\s"'${BARRIER}]{2,200})|(?:-b|--cookie)[ =]["']?(?<secretb>[^\\s"'=${BARRIER}]{1,60}=[^"'\\r\\n${BARRIER}]{4,2000}))`,
    ),
    accepts: (value) => !/^[$%<{[]/.test(value),
  },
  {
    kind: 'password',
    signs: [
      ...[
        'mysql',
        'maria',
        'sshpass',
        'mongo',
        'login',
        '7z',
        'rar',
        'zip',
        'sqlcmd',
        'bcp',
        'isql',
        'ipmitool',
      ],
      ...['redis-cli', 'ldap', 'smbclient', 'htpasswd', '/user:', 'openssl', 'xfreerdp'],
    ],
    form: form(
      [
        `(?:mysql\\w*|maria\\w*|sshpass)\\b[^\\n|;${BARRIER}]{0,300}?\\s-p(?<secret>[^\\s"'=${BARRIER}-][^\\s"'${BARRIER}]{2,200})`,
        `(?:mysql\\w*|maria\\w*)\\b[^\\n|;${BARRIER}]{0,300}?\\s-p["'](?<secretb>[^"'\\n${BARRIER}]{3,200})["']`,
        `(?:sshpass|mongo\\w*|docker\\s+login|podman\\s+login|helm\\s+registry\\s+login|az\\s+login|7za?|rar|unrar)\\b[^\\n|;${BARRIER}]{0,300}?\\s-p\\s?["']?(?<secretc>[^\\s"'${BARRIER}-][^\\s"'${BARRIER}]{2,200})`,
        `(?:zip|unzip|sqlcmd|bcp|isql|ipmitool)\\b[^\\n|;${BARRIER}]{0,300}?\\s-P\\s?["']?(?<secretd>[^\\s"'${BARRIER}-][^\\s"'${BARRIER}]{2,200})`,
        `redis-cli\\b[^\\n|;${BARRIER}]{0,300}?\\s-a\\s["']?(?<secrete>[^\\s"'${BARRIER}-][^\\s"'${BARRIER}]{2,200})`,
        `ldap\\w+\\b[^\\n|;${BARRIER}]{0,300}?\\s-w\\s["']?(?<secretf>[^\\s"'${BARRIER}-][^\\s"'${BARRIER}]{2,200})`,
        `smbclient\\b[^\\n|;${BARRIER}]{0,300}?%(?<secretg>[^\\s"'${BARRIER}]{3,200})`,
        `htpasswd\\s+-\\w*b\\w*\\s+\\S{1,200}\\s+\\S{1,100}\\s+["']?(?<secreth>[^\\s"'${BARRIER}]{3,200})`,
        `net\\s+use\\b[^\\n${BARRIER}]{0,300}?/user:\\S{1,100}\\s+["']?(?<secreti>[^\\s"'/${BARRIER}]{3,200})`,
        `openssl\\b[^\\n${BARRIER}]{0,300}?\\bpass:(?<secretj>[^\\s"'${BARRIER}]{3,200})`,
        `xfreerdp\\b[^\\n${BARRIER}]{0,300}?/p:["']?(?<secretk>[^\\s"'${BARRIER}]{3,200})`,
      ].join('|'),
    ),
    accepts: (value) => !/^(?:[$%<{[]|\d{1,5}(?::\d+)?$)/.test(value),
  },
  {
    kind: 'password',
    signs: [
      ...['machine', 'identified', 'securestring', 'vault', '--from-literal', 'requirepass', 'masterauth'],
      ...['password', 'sudo', 'chpasswd', 'default', 'env', ':thin:'],
    ],
    form: form(
      [
        `machine\\s+\\S{1,200}\\s+login\\s+\\S{1,200}\\s+password\\s+(?<secret>[^\\s${BARRIER}]{1,200})`,
        `identified\\s+(?:with\\s+\\S{1,40}\\s+)?by\\s+(?:password\\s+)?["'](?<secretb>[^"'\\n${BARRIER}]{3,200})["']`,
        `with\\s+(?:encrypted\\s+)?password\\s+["'](?<secretc>[^"'\\n${BARRIER}]{3,200})["']`,
        `convertto-securestring\\s+(?:-string\\s+)?["'](?<secretd>[^"'\\n${BARRIER}]{3,200})["']`,
        `(?:requirepass|masterauth)\\s+["']?(?<secrete>[^\\s"'${BARRIER}]{4,200})`,
        `echo\\s+["']?(?<secretf>[^\\s"'|$${BARRIER}]{4,200})["']?\\s*\\|\\s*(?:sudo\\s+-S|[^\\n|]{0,100}--password-stdin|[^\\n|]{0,100}chpasswd)`,
        `sudo\\s+-S[^\\n<]{0,100}<<<\\s*["']?(?<secreth>[^\\s"'$${BARRIER}]{4,200})`,
        `(?:vault\\s+(?:kv\\s+put|write)\\s+\\S{1,200}\\s+\\w{1,60}|--from-literal[= ]["']?[\\w.-]{1,60})=["']?(?<secretl>[^\\s"'=@${BARRIER}][^\\s"'${BARRIER}]{3,300})`,
        `env\\s+\\w{0,60}(?:${secretWord})\\s+["']?(?<secreti>[^\\s"'=${BARRIER}]{4,300})`,
        `:thin:\\w{1,60}/(?<secretj>[^\\s@/${BARRIER}]{3,100})@`,
        `type=["']?password["']?[^<>${BARRIER}]{0,200}?\\svalue=["'](?<secretk>[^"'\\n${BARRIER}]{3,200})["']`,
        `variable\\s+"[^"\\n]{0,60}(?:${secretWord})[^"\\n]{0,20}"\\s*\\{[^}${BARRIER}]{0,600}?default\\s*=\\s*"(?<secretg>[^"\\n${BARRIER}]{3,500})"`,
      ].join('|'),
      'i',
    ),
    accepts: (value) => !/^[$%<{[]/.test(value),
  },
  {
    kind: 'password',
    signs: nameSigns,
    marks: ['|', '>'],
    // A block of lines in YAML: `password: |`.
    form: form(
      `^([ \\t]{0,40})(?:- )?["']?[\\w.-]{0,60}(?:${secretWord}|${shortWord})["']?:[ \\t]{0,4}[|>][-+\\d]{0,2}[ \\t]{0,4}\\r?\\n(?<secret>(?:\\1[ \\t]{1,40}[^\\s${BARRIER}][^\\n${BARRIER}]{0,2000}(?:\\r?\\n|$)){1,100})`,
      'im',
    ),
  },
  {
    kind: 'password',
    signs: nameSigns,
    marks: ['='],
    // `DB_PASSWORD=…` in a line of its own: the value ends with the line.
    form: form(
      `(?<=(?:^|\\n)[ \\t]{0,20}(?:export[ \\t]{1,4}|set[ \\t]{1,4}|setx[ \\t]{1,4}|ENV[ \\t]{1,4}|ARG[ \\t]{1,4}|-e[ \\t]{1,4}|- |\\$env:)?[A-Za-z_][\\w.]{0,60}?(?:${secretWord}|${shortWord})(?:[_-]?\\w{1,8})?=)(?<secret>[^\\s"'\`$<{(${BARRIER}][^\\s"'\`${BARRIER}]{3,400})(?=[ \\t]{0,20}(?:#[^\\n]{0,200})?(?:\\r?\\n|$))`,
      'i',
    ),
    accepts: notHarmless,
  },
  {
    kind: 'password',
    signs: nameSigns,
    marks: [':', '=', '：', '->', '|'],
    // `"api_key": "…"`, `password = …`; in quotes up to the quote, otherwise a word that is not code.
    form: form(
      `(?:${name})["'\`]?\\]?(?: ?\\[[^\\]\\n]{0,30}\\])?${assigned}(?:[bru]{0,2}${inQuotes(3, 'secretq')}|(?<secret>(?![\\w.$]{1,100}[(\\[])[^\\s"'\`,;()<>{}[\\]\\\\|&${BARRIER}][^\\s"'\`,;<>{}\\\\|&${BARRIER}]{3,500}))`,
      'i',
    ),
    accepts: notHarmless,
  },
  {
    kind: 'password',
    signs: wordSigns,
    // `--password …`, `<password>…</password>`, `key="Password" value="…"`, `name: TOKEN` with `value: …`, `("password", "…")`.
    form: form(
      [
        `--?(?:[a-z]{1,20}-){0,3}(?:${secretWord}|pass|token)[ =]["']?(?<secret>[^\\s"'${BARRIER}-][^\\s"'${BARRIER}]{3,300})`,
        `<(?:\\w{1,20}:)?[\\w.-]{0,40}(?:${secretWord}|pass|token)(?:\\s[^<>]{0,100})?>\\s{0,40}(?<secretb>[^<\\s${BARRIER}][^<\\n${BARRIER}]{2,300})</`,
        `(?:name|key|id)["']?\\s{0,3}[:=]\\s{0,3}["']?[\\w.:-]{0,60}(?:${secretWord}|pass|token)["']?\\s{0,3},?\\s{0,40}["']?value["']?\\s{0,3}[:=]\\s{0,3}["']?(?<secretc>[^\\s"'<>${BARRIER}]{4,300})`,
        `["'](?:[\\w.-]{0,40}[_.-])?(?:${secretWord}|pass|token)["']\\s{0,3},\\s{0,40}["'](?<secretd>(?=[^"'\\n]{0,200}[\\d!@#$%^&*])[^"'\\s${BARRIER}]{4,300})["']`,
      ].join('|'),
      'i',
    ),
    accepts: notHarmless,
  },
  {
    kind: 'password',
    signs: [':'],
    // A line of `.pgpass`.
    form: form(
      `^[\\w.*-]{1,100}:\\d{4,5}:[\\w*-]{1,60}:[\\w*-]{1,60}:(?<secret>[^\\s:${BARRIER}]{3,200})$`,
      'm',
    ),
  },
  {
    kind: 'seed_phrase',
    signs: ['seed', 'mnemonic', 'recovery', 'wallet'],
    form: form(
      `(?:seed(?: phrase| words)?|mnemonic|recovery (?:phrase|words)|wallet phrase)["']?\\s{0,3}(?:is|are|:|=)?\\s{0,3}["'\`]?(?<secret>(?:[a-z]{3,8}[ ,]{1,3}){11,23}[a-z]{3,8})(?![a-z])`,
      'i',
    ),
  },
  {
    kind: 'signature',
    signs: ['sig', 'security-token'],
    form: form(
      `[?&](?:x-amz-(?:signature|security-token)|x-goog-signature|sig|signature)=(?<secret>[\\w%+/=.-]{16,2000})`,
      'i',
    ),
  },
  {
    kind: 'password',
    signs: [
      ...[...passWords, 'pass w', 'pass p', 'pass c', 'pw', 'pin', 'otp', ' code', ' key', 'i-key', 'ikey'],
      ...['secret', 'token', 'credential', 'kennwort', 'zugang', 'contrase', 'clave', 'mot de', 'senha'],
      ...['palavra-passe', 'wachtwoord', 'lösenord', 'hasło', 'şifre', 'парол'],
    ],
    // Sentences: "the password for the server is …".
    form: form(
      `(?<![\\p{L}\\d_${BARRIER}-])(?:${said})["'*)]{0,3}(?:[ \\t]+\\(?[\\p{L}\\d@./'’_-]{1,40}\\)?){0,7}?[ \\t]*(?:(?<=[ \\t])(?:${saidIs})|[:：=])(?:[ \\t]+(?:now|set to|still|jetzt|ahora|:))?\\s{0,3}[*_]{0,2}(?:["'\`“”„«‘](?<secretq>[^"'\`“”»’\\r\\n${BARRIER}]{4,120})["'\`“”»’]|(?<secret>[^\\s"'\`“”„«»*,;()<>{}[\\]|\\\\${BARRIER}][^\\s"'\`“”„«»<>{}|\\\\${BARRIER}]{2,119}(?<![.,;:!?)*…])))`,
      'iu',
    ),
    accepts: isSaid,
  },
  {
    kind: 'password',
    signs: [...passWords, 'pw', 'kennwort'],
    // "log in with the password …".
    form: form(
      `(?<![\\p{L}\\d_${BARRIER}-])(?:password|passphrase|passcode|passwort|kennwort|pwd|pw)[ \\t]+["'\`“]?(?<secret>(?=[^\\s"'\`]{0,60}\\d)(?=[^\\s"'\`]{0,60}\\p{L})[^\\s"'\`“”,;()<>{}[\\]|\\\\${BARRIER}]{6,120}(?<![.,;:!?)]))`,
      'iu',
    ),
    accepts: isSaid,
  },
  {
    kind: 'password',
    signs: ['key', 'token', 'secret'],
    // "here is the token …".
    form: form(
      `(?<![\\p{L}\\d_${BARRIER}-])(?:key|token|secret)[ \\t]+["'\`“]?(?<secret>[\\w+/=.-]{20,300})(?![\\w${BARRIER}])`,
      'iu',
    ),
    accepts: (value) =>
      /[A-Z]/.test(value) &&
      /[a-z]/.test(value) &&
      (value.match(/\d/g) ?? []).length > 2 &&
      !/[./-].*[./-]/.test(value),
  },
  {
    kind: 'password',
    signs: [...passWords, 'kennwort', 'contrase'],
    // "use … as the password", "… is the password".
    form: form(
      `(?<![^\\s"'\`“(])(?<secret>(?=[^\\s"'\`]{0,60}\\d)(?=[^\\s"'\`]{0,60}\\p{L})[^\\s"'\`“”,;()<>{}[\\]|\\\\${BARRIER}]{6,60})["'\`”]?[ \\t]+(?:is|as|ist|als|es|como)[ \\t]+(?:(?:the|my|your|our|a|das|mein|dein|la|mi|tu)[ \\t]+)?(?:[\\w-]{1,20}[ \\t]+){0,2}(?:password|passphrase|passcode|passwort|kennwort|contraseña)`,
      'iu',
    ),
    accepts: isSaid,
  },
  {
    kind: 'password',
    signs: [
      ...['credential', 'login', 'log in', 'logged in', 'loggedin', 'sign in', 'account'],
      ...['zugangsdaten', 'anmeld', 'acceso'],
    ],
    // "log in as admin / …".
    form: form(
      `(?:credentials?|log(?:ged)? ?in|sign in|account|zugangsdaten|anmeldung|anmelden|acceso)(?: (?:is|are|as|with|using|data|details|for|to|mit|als|con|de|[\\w.-]{1,30})){0,4}\\s?[:=]?\\s{1,2}["'\`]?[\\w.@+-]{2,60}["'\`]?(?: ?/ ?| ?\\| ?|:)["'\`]?(?<secret>(?=[^\\s"'\`]{0,60}\\d)(?=[^\\s"'\`]{0,60}[A-Za-z])[^\\s"'\`,;()<>/${BARRIER}]{6,100}(?<![.!?]))`,
      'i',
    ),
    accepts: (value) => (isRandom(value) && /[A-Z!@#$%^&*]/.test(value)) || /[!@#$%^&*]/.test(value),
  },
  {
    kind: 'password',
    signs: ['密码', '密碼', '口令', '密钥', '密鑰', 'パスワード', '비밀번호', '암호'],
    // Languages without spaces between words.
    form: form(
      `(?:密码|密碼|口令|密钥|密鑰|パスワード|비밀번호|암호)[^\\s\\w：:，。,.${BARRIER}]{0,12}?(?:是|为|為|改成|改为|设为|叫|は|が|는|은|이|가|를|을|：|:|=)?[ \\t:：]{0,3}["'\`“「『]?(?<secret>[\\x21-\\x7E]{4,120}(?<![.,;:!?)"'\`]))`,
    ),
    accepts: (value, given) => isSaid(value, given),
  },
];
