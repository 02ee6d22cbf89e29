/* Private to core: names in the order of the enumerations of ty_profile.h. */
#ifndef TY_PROFILE_NAMES_H
#define TY_PROFILE_NAMES_H

#include "ty_profile.h"

extern const char *const ty_collective_names[TY_COLLECTIVE_COUNT];
extern const char *const ty_algorithm_names[TY_ALGORITHM_COUNT];

#endif
