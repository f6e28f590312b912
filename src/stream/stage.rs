//! Stages: what the fused island makes of the modules of a blueprint.

/// What the fused island needs of a module to create a stage.
pub trait ErasedStage: Send + Sync {}
