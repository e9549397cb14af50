import tseslint from 'typescript-eslint';

// Dependencies point one way (README, "Where things are"): pure core <- store, llm, temporal <- activities <- shells.
const pure = ['conversation', 'tokens', 'policy', 'summary', 'compaction'];
const withIo = [
  'store',
  'llm',
  'temporal',
  'runtime',
  'api',
  'cli',
  'worker.js',
  'palimpsest.js',
  'config.js',
];
const forbid = (names, message) => ({
  patterns: [{ regex: `(^|/)(${names.join('|').replaceAll('.', '\\.')})(/|$)`, message }],
});

export default tseslint.config(
  { ignores: ['dist/', 'node_modules/', '.palimpsest/'] },
  ...tseslint.configs.recommended,
  {
    files: ['**/*.ts'],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/no-misused-promises': 'error',
      '@typescript-eslint/no-explicit-any': 'error',
      '@typescript-eslint/consistent-type-imports': 'error',
      '@typescript-eslint/no-unused-vars': [
        'error',
        { argsIgnorePattern: '^_', varsIgnorePattern: '^_', ignoreRestSiblings: true },
      ],
      '@typescript-eslint/switch-exhaustiveness-check': 'error',
      'no-console': 'error',
      eqeqeq: ['error', 'always'],
    },
  },
  {
    files: pure.map((folder) => `src/${folder}/**/*.ts`),
    rules: {
      'no-restricted-imports': [
        'error',
        forbid(
          [
            ...withIo,
            'activities',
            'workflows',
            'pg',
            'openai',
            'drizzle-orm',
            '@temporalio',
            'node:fs',
            'node:net',
            'node:http',
            'node:child_process',
          ],
          'The pure core does no I/O.',
        ),
      ],
    },
  },
  {
    files: ['src/store/**/*.ts', 'src/llm/**/*.ts', 'src/temporal/**/*.ts'],
    rules: {
      'no-restricted-imports': [
        'error',
        forbid(
          ['activities', 'api', 'cli', 'worker.js', 'palimpsest.js'],
          'store, llm and temporal import the pure core only.',
        ),
      ],
    },
  },
  {
    files: ['activities/**/*.ts'],
    rules: {
      'no-restricted-imports': [
        'error',
        forbid(['api', 'cli', 'worker.js', 'palimpsest.js'], 'Activities sit below the shells.'),
      ],
    },
  },
  {
    files: ['workflows/**/*.ts'],
    rules: {
      '@typescript-eslint/no-restricted-imports': [
        'error',
        {
          patterns: [
            {
              regex: '(^|/)(activities)(/|$)',
              message: 'Workflows import only types of activities.',
              allowTypeImports: true,
            },
            {
              regex: '(^|/)(store|llm|runtime|api|cli)(/|$)|^(pg|openai|drizzle-orm|zod)$|^node:',
              message: 'Workflow code is deterministic: no I/O, no heavy packages.',
              allowTypeImports: true,
            },
          ],
        },
      ],
    },
  },
  {
    files: ['src/cli/**/*.ts', 'bench/**/*.ts', 'examples/**/*.ts', 'test/**/*.ts'],
    rules: { 'no-console': 'off' },
  },
);
