// Leases of dlock that are kept alive, for pg and mysql2; dlock.js and README.md say more.

/** Seconds of the clock of all deadlines, which nobody sets. */
export function now(): number;

/** A connected pg.Client, or a connection of mysql2 or mysql2/promise. */
export type Connection = { query: (...args: any[]) => any };

/** Seconds, or text such as '30s', '500 ms' or '1 day 2 hours'. */
export type Time = number | string;

export type EventKind = 'acquired' | 'refused' | 'renewed' | 'late' | 'lost' | 'released' | 'unreferenced';

/**
 * Told what happens, in its order; of a lease with several names for each name.  The seconds are, for
 * acquired and refused: since the acquire began; renewed: since it was sent; late: until the lease is
 * lost; else: since it was acquired.
 */
export type EventListener = (kind: EventKind, name: string, seconds: number) => void | Promise<void>;

/** Makes a new connection each time, not one of a pool. */
export type Connect = () => Connection | Promise<Connection>;

/** What to lease; an option that is not here is Misuse. */
export interface ClientLeaseOptions {
   /** What to lease: this, or names. */
   name?: string;
   /** Up to 100 names, exclusively, all or none. */
   names?: Iterable<string>;
   /** For how long it lasts if it is not renewed; 30 by default. */
   ttl?: Time;
   /** How long to wait for it; 0, the default, tries once, less than 0 waits without limit. */
   wait?: Time;
   /** Shared with others that share it. */
   shared?: boolean;
   /** One of this many permits. */
   permits?: number;
   /** Ends the wait: acquire() rejects with its reason. */
   signal?: AbortSignal;
   /** Called once, when the lease is lost. */
   onLost?: (lease: Lease) => void | Promise<void>;
   /** In place of the client's. */
   onEvent?: EventListener;
   /** How long to go on while no server is reached, or answers; 10 by default. */
   connectTimeout?: Time;
   /** How long from the grant: a lease released sooner is not given back, but left to end then. */
   keepAtLeast?: Time;
}

/** Of a lease without a client. */
export interface LeaseOptions extends ClientLeaseOptions {
   connect: Connect;
   /** The owner; by default one that nobody else has. */
   owner?: string;
}

export interface ClientOptions {
   connect: Connect;
   /** The owner of all its leases; by default one that nobody else has. */
   owner?: string;
   onEvent?: EventListener;
   connectTimeout?: Time;
}

export type LeaseState = 'new' | 'waiting' | 'held' | 'lost' | 'released';

/** A lease, used once.  Every question compares the clock first, except signal.aborted. */
export class Lease {
   constructor(options: LeaseOptions);
   readonly name: string;
   readonly names: string[];
   readonly owner: string;
   readonly state: LeaseState;
   /** Whether it is held, and safely so. */
   readonly held: boolean;
   /** The token of its grant; if it has several names, of the first. */
   readonly token: number;
   readonly tokens: number[];
   /** The deadline, by now(). */
   readonly deadline: number;
   /** Aborted when the lease is lost; its reason is a Lost. */
   readonly signal: AbortSignal;
   /** Seconds to the deadline; 0 if it is not held. */
   remaining(): number;
   /** Throws Lost if it is lost, and Misuse if it was never held or is released. */
   check(): void;
   acquire(): Promise<this>;
   /** Gives it back; says whether the server has confirmed it.  Never rejects. */
   release(): Promise<boolean>;
   /** Guards it in the open transaction of the program's connection; rejects with Lost if it is lost: roll back. */
   guard(connection: Connection): Promise<void>;
}
// and [Symbol.asyncDispose](), where the runtime has it

/**
 * Keeps many leases by one connection, with one owner.  A name that another lease of its has is
 * Misuse, until that is released.
 */
export class Client {
   constructor(options: ClientOptions);
   readonly owner: string;
   /** A lease, not acquired yet. */
   lease(options: ClientLeaseOptions): Lease;
   /** As the function of that name. */
   withLease<T>(options: ClientLeaseOptions, work: (lease: Lease) => T | Promise<T>): Promise<T>;
   /** Releases all, and ends the connections; an acquire is Misuse then.  Never rejects. */
   close(): Promise<void>;
}
// and [Symbol.asyncDispose](), where the runtime has it

/**
 * Calls work while the lease is held, and then releases it; resolves with work's answer.  Rejects
 * with Lost if work ended well but the lease was lost before.
 */
export function withLease<T>(options: LeaseOptions, work: (lease: Lease) => T | Promise<T>): Promise<T>;

/** Releases every lease that is held, for the handler of a signal. */
export function releaseAll(): Promise<void>;

/** The class of all errors here.  cause is the driver's own. */
export class DlockError extends Error {
   readonly sqlstate?: string;
   readonly errno?: number;
   readonly cause?: unknown;
}
/** Not free within the wait, or a deadlock: try later. */
export class Busy extends DlockError {}
/** The lease ended before it was released. */
export class Lost extends DlockError {}
/** An argument, a privilege or the order of calls is wrong. */
export class Misuse extends DlockError {}
/** No server answered, or none that can do it now: try again. */
export class Unavailable extends DlockError {}
