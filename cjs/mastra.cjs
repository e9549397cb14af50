// Node loads the same modules for `require` as for `import`: one `PalimpsestError`, whoever asks.
module.exports = require('../dist/src/adapters/mastra.js');
