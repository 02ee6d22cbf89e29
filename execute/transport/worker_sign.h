/**
 * @file worker_sign.h
 * Signs that a worker leaves for its launcher: see TY_WORKER_SIGNS. Internal to execute/.
 */
#ifndef TY_WORKER_SIGN_H
#define TY_WORKER_SIGN_H

/** Does nothing if the launcher requested no signs. @param sign TY_WORKER_BEGUN, TY_WORKER_SAID,
 * ...
 */
void ty_worker_sign(const char *sign);

#endif
