// The SDK of Temporal loads this file with `require`, and the bundle of the workflows contains it.
const { DefaultFailureConverter } = require('@temporalio/common');

/** Puts message and stack trace of a failure into a payload, which the codec encrypts. */
class EncodingFailureConverter extends DefaultFailureConverter {
  constructor() {
    super({ encodeCommonAttributes: true });
  }

  // The SDK overwrites the message of what this returns: the error that several callers share must keep its own.
  errorToFailureInner(...args) {
    return { ...super.errorToFailureInner(...args) };
  }
}

exports.failureConverter = new EncodingFailureConverter();
