// The headers that most tests include: see kernels/precompiled.h. Not that of JSON, which adds two
// thirds of a second to every file.
#pragma once
#include <gtest/gtest.h>

#include "kernels/precompiled.h"
