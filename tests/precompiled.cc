// Only here so that precompiled.h has a source to be built with.
