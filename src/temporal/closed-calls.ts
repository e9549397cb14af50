import { InterceptingCall, type Interceptor, Metadata, status } from '@grpc/grpc-js';

type Call = ConstructorParameters<typeof InterceptingCall>[0];

/**
 * Ends a call of a closed connection with status CANCELLED. The SDK repeats failed calls from a timer; a call that starts on a
 * closed channel throws, and an error thrown in a timer would end the process.
 */
export const endCallsOnceClosed: Interceptor = (options, nextCall) => {
  try {
    return new InterceptingCall(nextCall(options));
  } catch (error) {
    return new InterceptingCall(cancelled(error instanceof Error ? error.message : String(error)));
  }
};

function cancelled(details: string): Call {
  const nothing = (): void => undefined;
  return {
    start(_metadata, listener) {
      // A call gives its message before its status; the SDK relies on it.
      listener?.onReceiveMessage?.(null);
      listener?.onReceiveStatus?.({ code: status.CANCELLED, details, metadata: new Metadata() });
    },
    sendMessageWithContext: nothing,
    sendMessage: nothing,
    startRead: nothing,
    halfClose: nothing,
    cancelWithStatus: nothing,
    getPeer: () => 'unknown',
    getAuthContext: () => null,
  };
}
