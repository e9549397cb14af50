// Node loads the same modules for `require` as for `import`.
module.exports = require('../dist/src/adapters/ai-sdk.js');
