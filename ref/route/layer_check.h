/* What a layer must be before any token of it is routed. */
#ifndef MOEREF_LAYER_CHECK_H
#define MOEREF_LAYER_CHECK_H

#include "route.h"

enum mr_status mr_layer_check(const struct mr_layer *layer, struct mr_error *err);

#endif
