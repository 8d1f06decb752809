"""Every error rtmem raises. Foreign errors pass through `drivers/translate.py`, cause kept.

RtmemError
├── ConfigError                    what you set up cannot work: says what to change
│   ├── ServerTooOldError          this Redis lacks a command rtmem needs
│   ├── ModuleMissingError         this Redis lacks the query engine or JSON
│   ├── EmbedderMismatchError      the vectors in the index are another embedder's
│   ├── DataDirectoryError         the embedded server's directory cannot be used
│   ├── PortTakenError             another program listens there
│   ├── GatewayRunningError        another gateway serves this data directory
│   ├── GraphNotFoundError         `module:graph` does not lead to a graph
│   └── ExtraMissingError          an optional package is not installed: says which extra brings it
├── InvalidRequestError            the call itself is wrong; nothing was sent
│   ├── IdTooLongError             an id is over 512 bytes
│   ├── UnsupportedError           this class cannot do that (a shallow saver has no history)
│   ├── WrongColourError           a sync call inside a running event loop
│   ├── MalformedFrameError        a client sent something that is not a command
│   ├── UnknownCommandError        a client sent a command this gateway does not know
│   ├── NoSuchInterruptError       an answer to a question nobody asks
│   ├── NoSuchSubscriptionError    a subscription that this connection does not have
│   ├── TooLargeError              a value above the setting that limits it
│   └── QueryError                 a pattern, path, range or continuation that cannot be used
│       └── QueryLimitError        it can, and would take too long or answer too much
├── ServerError                    Redis could not do it
│   ├── ServerUnavailableError     nobody answers, or the connection broke  (retryable)
│   ├── ServerStartError           the embedded server died at start; its log says why
│   ├── ServerLoadingError         Redis is reading its data from disk      (retryable)
│   ├── DeadlineExceededError      no answer in time; a write may have happened (retryable)
│   ├── AuthenticationError        wrong user or password
│   ├── PermissionDeniedError      the ACL forbids a command or a key
│   ├── ReadOnlyReplicaError       this server is a replica
│   ├── ServerFullError            maxmemory reached under noeviction
│   ├── PersistenceError           MISCONF: Redis cannot write its AOF or RDB
│   ├── FunctionMissingError       the function library is not loaded (handled in operations/functions.py)
│   └── CommandError               any other error reply
├── StorageError                   what is stored contradicts itself or this program
│   ├── DataDamagedError           the embedded server's log lost something; `rtmem repair` tells what
│   ├── CorruptRecordError         an index leads to nothing, or bytes do not decode
│   ├── StateUnreadableError       a graph's reducers refuse what its last run left stored
│   ├── NewerLayoutError           written by a newer rtmem
│   ├── StaleWriterError           the fencing token is older than the thread's, or another reindex took over
│   └── ThreadDeletedError         a late write to a thread that was deleted meanwhile
├── PointerNotFoundError           no such pointer, or not yours: nobody learns which
│   └── PointerExpiredError        it was yours, and its time is over
├── FactNotFoundError              no such fact, or not yours: nobody learns which
├── CacheEntryNotFoundError        no such cached answer, or not yours: nobody learns which
├── ScopeNotFoundError             no such team or application, or you are no member: nobody learns which
├── FactConflictError              the fact has ended already: superseded or invalidated meanwhile
├── WriteRefusedError              the write policy does not let this into memory
├── CalibrationError               labelled pairs that show no threshold: too few, or none is good enough
├── EmbeddingError                 a model gave no vectors, or none that can be used
│   └── EmbeddingUnavailableError  it may later: overloaded, too slow, not reached (retryable)
├── QuotaExceededError             a tenant's pointers would take more than its share
├── NotDurableError                stored, but not proved to be as durable as asked
├── RunInProgressError             the thread is busy with another run      (retryable)
├── DrainingError                  this gateway is shutting down            (retryable)
├── RunFailedError                 a run at a gateway ended without an answer
├── UnauthorizedError              missing or wrong token
└── ReplayGapError                 the event log no longer holds what the client missed
"""

from __future__ import annotations

from typing import Any


class RtmemError(Exception):
    """Base of all. The message says what was tried, on what, what was found and what to do; `data` repeats it."""

    retryable = False

    def __init__(self, message: str, **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.data = data


class ConfigError(RtmemError):
    pass


class ServerTooOldError(ConfigError):
    pass


class ModuleMissingError(ConfigError):
    pass


class EmbedderMismatchError(ConfigError):
    pass


class DataDirectoryError(ConfigError):
    pass


class PortTakenError(ConfigError):
    pass


class GatewayRunningError(ConfigError):
    pass


class GraphNotFoundError(ConfigError):
    pass


class ExtraMissingError(ConfigError, ImportError):
    pass


class InvalidRequestError(RtmemError, ValueError):
    pass


class IdTooLongError(InvalidRequestError):
    pass


class UnsupportedError(InvalidRequestError):
    pass


class WrongColourError(InvalidRequestError):
    pass


class MalformedFrameError(InvalidRequestError):
    pass


class UnknownCommandError(InvalidRequestError):
    pass


class NoSuchInterruptError(InvalidRequestError):
    pass


class NoSuchSubscriptionError(InvalidRequestError):
    pass


class TooLargeError(InvalidRequestError):
    pass


class QueryError(InvalidRequestError):
    pass


class QueryLimitError(QueryError):
    pass


class ServerError(RtmemError):
    pass


class ServerUnavailableError(ServerError):
    retryable = True


class ServerStartError(ServerError):
    pass


class ServerLoadingError(ServerError):
    retryable = True


class DeadlineExceededError(ServerError, TimeoutError):
    retryable = True


class AuthenticationError(ServerError):
    pass


class PermissionDeniedError(ServerError):
    pass


class ReadOnlyReplicaError(ServerError):
    pass


class ServerFullError(ServerError):
    pass


class PersistenceError(ServerError):
    pass


class FunctionMissingError(ServerError):
    pass


class CommandError(ServerError):
    pass


class StorageError(RtmemError):
    pass


class DataDamagedError(StorageError):
    pass


class CorruptRecordError(StorageError):
    pass


class StateUnreadableError(StorageError):
    pass


class NewerLayoutError(StorageError):
    pass


class StaleWriterError(StorageError):
    pass


class ThreadDeletedError(StorageError):
    pass


class PointerNotFoundError(RtmemError, LookupError):
    pass


class PointerExpiredError(PointerNotFoundError):
    pass


class FactNotFoundError(RtmemError, LookupError):
    pass


class CacheEntryNotFoundError(RtmemError, LookupError):
    pass


class ScopeNotFoundError(RtmemError, LookupError):
    pass


class FactConflictError(RtmemError):
    pass


class WriteRefusedError(RtmemError):
    pass


class CalibrationError(RtmemError):
    pass


class EmbeddingError(RtmemError):
    pass


class EmbeddingUnavailableError(EmbeddingError):
    retryable = True


class QuotaExceededError(RtmemError):
    pass


class NotDurableError(RtmemError):
    pass


class RunInProgressError(RtmemError):
    retryable = True


class DrainingError(RtmemError):
    retryable = True


class RunFailedError(RtmemError):
    pass


class UnauthorizedError(RtmemError):
    pass


class ReplayGapError(RtmemError):
    pass
