/**
 * @file worker_sign.h
 * What a worker leaves for whoever started it: see TY_WORKER_SIGNS. Internal to execute/.
 */
#ifndef TY_WORKER_SIGN_H
#define TY_WORKER_SIGN_H

/** @param sign TY_WORKER_BEGUN, TY_WORKER_SAID, ... Nothing where nobody asked for signs. */
void ty_worker_sign(const char *sign);

#endif
